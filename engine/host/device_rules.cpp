#include "engine/host/device_rules.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace overdrive::engine::host {

bool runs_on_caller(c10::DeviceType type) {
  return type == c10::kCPU || type == c10::kMeta || type == c10::kLazy;
}

bool has_device_with_queue() {
  for (size_t i = 0; i < std::size(c10::impl::device_guard_impl_registry); ++i) {
    if (c10::impl::device_guard_impl_registry[i].load(std::memory_order_acquire) != nullptr &&
        !runs_on_caller(static_cast<c10::DeviceType>(i))) {
      return true;
    }
  }
  return false;
}

bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  const bool leaf_records = leaf.is_capturing();
  if (caller == leaf || caller.is_capturing() == leaf_records) return true;
  TORCH_CHECK(
      at::globalContext().overrideStaleCaptureStream(),
      "During CUDA graph capture, autograd tried to synchronize streams across the capture boundary (leaf "
      "stream ",
      leaf.id(), " on device ", static_cast<int>(leaf.device_index()),
      leaf_records ? " is capturing but the caller's stream is not"
                   : " is not capturing but the caller's stream is",
      "), which would invalidate the capture. A common cause is an autograd leaf from warmup holding a "
      "stale stream. Either run warmup on the capture stream, delete references to the autograd graph "
      "(e.g. `del loss`) before capture, call backward() with the capturing stream current, or call "
      "torch.autograd.graph.set_override_stale_capture_stream(True).");
  TORCH_WARN_ONCE(
      "Skipping the end-of-backward sync between a leaf stream and the caller's current stream because exactly "
      "one of them is capturing a CUDA graph (see torch.autograd.graph.set_override_stale_capture_stream).");
  return false;
#else
  return true;
#endif
}

}  // namespace overdrive::engine::host
