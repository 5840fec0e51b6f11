// One scope of hooks, as the thread-local state of LibTorch carries it. Made by ScopedHooks; shared with
// every thread that the state travels to. Private.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/hook_stack.h"
#include "hooks/shared_units.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <map>

namespace overdrive::hooks {

class HookScope final : public c10::DebugInfoBase, public std::enable_shared_from_this<HookScope> {
 public:
  HookScope(HooksPtr hooks_here, const HookOptions& options_here, std::shared_ptr<HookScope> around)
      : hooks(std::move(hooks_here)), options(options_here), around_(std::move(around)) {}

  // The innermost one on this thread that is still open, or null.
  static HookScope* innermost();
  void open();
  void close();

  const HooksPtr hooks;  // null: tensors are saved plainly
  const HookOptions options;
  SharedUnits units;

  // Whether hooks want this tensor; asked once per kind of tensor where the hook allows that.
  bool wants(const at::Tensor& tensor, const SaveInfo& info) OVERDRIVE_EXCLUDES(mutex_);
  uint64_t next_id() { return 1 + ids_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<HookScope> around_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> place_;  // of the thread that opened it
  std::atomic<bool> open_{true};
  std::atomic<uint64_t> ids_{0};

  base::Mutex mutex_;
  // By the hook's key and the tensor's type, device and sizes.
  std::map<at::DimVector, bool> decisions_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::hooks
