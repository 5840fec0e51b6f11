// One scope of hooks, as the thread-local state of LibTorch carries it. Made by ScopedHooks; shared with every
// thread that the state travels to, and with the units packed in it. Any thread may read; its own thread opens
// and closes it. Leaves packing to HookedSave. Private.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/memory/pending.h"
#include "hooks/memory/shared_units.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <optional>

namespace overdrive::hooks {

class HookScope final : public c10::DebugInfoBase, public std::enable_shared_from_this<HookScope> {
 public:
  HookScope(HooksPtr hooks_here, const HookOptions& options_here, std::shared_ptr<HookScope> around = nullptr,
            std::optional<Schedule> schedule_here = {});

  // The innermost one on this thread that is still open, or null.
  static HookScope* innermost();
  void open();
  void close();

  const HooksPtr hooks;  // null: tensors are saved plainly
  const HookOptions options;
  const std::optional<Schedule> schedule;
  SharedUnits units;
  Pending pending;

  // How its units are packed and unpacked.
  PackUnit::Timing timing() const;
  // Whether hooks of the host (saved_tensors_hooks, save_on_cpu) were put on the thread inside this scope. The
  // innermost decides, of whichever kind.
  bool has_host_hooks_inside() const;
  uint64_t next_id() { return 1 + ids_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<HookScope> around_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> place_;  // of the thread that opened it
  size_t host_hooks_around_ = 0;                      // their number when it was opened
  std::atomic<bool> open_{true};
  std::atomic<uint64_t> ids_{0};
};

}  // namespace overdrive::hooks
