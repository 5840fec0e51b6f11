// The scopes of hooks. They nest, and the innermost one decides. A scope belongs to the thread that opened it
// and ends there, but travels, like LibTorch's own modes, with every at::ThreadLocalState: to the threads that
// run a backward or a recomputation begun inside it. A graph that was built in a scope keeps its hooks; it may
// be run at any time, on any thread. Leaves packing to HookedSave.
#pragma once

#include "engine/base/export.h"
#include "hooks/interface/saved_tensor_hooks.h"

#include <memory>
#include <optional>
#include <string>

namespace overdrive::hooks {

class HookScope;

// Tensors saved on this thread go to `hooks` while it lives; with a null pointer, to no hook of ours. Works
// inside pack() and unpack() of a hook, too. An error when Overdrive is not installed, and where hooks are
// disabled.
class OVERDRIVE_API ScopedHooks {
 public:
  explicit ScopedHooks(HooksPtr hooks, HookOptions options = {});
  ~ScopedHooks();
  ScopedHooks(const ScopedHooks&) = delete;
  ScopedHooks& operator=(const ScopedHooks&) = delete;

 private:
  std::shared_ptr<HookScope> scope_;
  int inside_hooks_;  // the depth of hooks around the scope
};

// The hooks that get the tensors which this thread saves now, or null.
OVERDRIVE_API HooksPtr active_hooks();

// While it lives, opening a scope of hooks on this thread, ours or the host's own, is an error with this
// message. Its constructor throws the same error inside a scope.
class OVERDRIVE_API DisabledHooks {
 public:
  explicit DisabledHooks(const std::string& message);
  ~DisabledHooks();
  DisabledHooks(const DisabledHooks&) = delete;
  DisabledHooks& operator=(const DisabledHooks&) = delete;

 private:
  std::optional<std::string> before_;
};

[[nodiscard]] inline DisabledHooks disable_saved_tensor_hooks(const std::string& message) {  // PyTorch's name.
  return DisabledHooks(message);
}

}  // namespace overdrive::hooks
