// Which hooks get the tensors that ops save: scopes that nest, the innermost decides. A scope belongs to the
// thread that opened it and ends there, but what it says travels, like LibTorch's own modes, with every
// at::ThreadLocalState: to the threads that run a backward or a recomputation begun inside it. A graph that
// was built in a scope keeps its hooks; it may be run at any time, on any thread.
#pragma once

#include "engine/base/export.h"
#include "hooks/interface/saved_tensor_hooks.h"

#include <memory>
#include <optional>
#include <string>

namespace overdrive::hooks {

struct HookOptions {
  // Leaves that require grad, and views of them, stay in memory anyhow: they are kept, not packed.
  bool skip_parameters = true;
  // Memory that is saved twice is packed once.
  bool share = true;
  // A tensor that was changed in place after it was saved is an error when it is unpacked, as it is without
  // hooks (stock gives that up for hooks).
  bool check_in_place = true;
};

class HookScope;

// Tensors saved on this thread from here on go to `hooks`; with a null pointer, to none of ours. Also inside
// pack() or unpack() of a hook, for code that it runs on purpose. An error when Overdrive is not installed, and
// where hooks are disabled.
class OVERDRIVE_API ScopedHooks {
 public:
  explicit ScopedHooks(HooksPtr hooks, HookOptions options = {});
  ~ScopedHooks();
  ScopedHooks(const ScopedHooks&) = delete;
  ScopedHooks& operator=(const ScopedHooks&) = delete;

 private:
  std::shared_ptr<HookScope> scope_;
  int inside_hooks_;  // of how many the scope was opened
};

// The hooks that get what this thread saves now, or null.
OVERDRIVE_API HooksPtr active_hooks();

// While it lives, opening a scope of hooks on this thread, ours or the host's own, is an error with this
// message; so is making it inside one.
class OVERDRIVE_API DisabledHooks {
 public:
  explicit DisabledHooks(const std::string& message);
  ~DisabledHooks();
  DisabledHooks(const DisabledHooks&) = delete;
  DisabledHooks& operator=(const DisabledHooks&) = delete;

 private:
  std::optional<std::string> before_;
};

[[nodiscard]] inline DisabledHooks disable_saved_tensor_hooks(const std::string& message) {
  return DisabledHooks(message);
}

}  // namespace overdrive::hooks
