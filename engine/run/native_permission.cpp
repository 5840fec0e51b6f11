#include "engine/run/native_permission.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace overdrive::engine {

bool a_mode_is_on() { return c10::impl::tls_local_dispatch_key_set().included_ != c10::default_included_set; }

NativeRefusal refusal_of_thread(bool has_callbacks) {
  if (c10::GradMode::is_enabled()) return NativeRefusal::kCreateGraph;
  if (a_mode_is_on() || c10::impl::dispatch_mode_enabled() ||
      c10::impl::tls_local_dispatch_key_set().excluded_ != c10::default_excluded_set) {
    return NativeRefusal::kMode;
  }
  if (has_callbacks) return NativeRefusal::kProfiler;
  if (torch::autograd::AnomalyMode::is_enabled()) return NativeRefusal::kAnomaly;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) return NativeRefusal::kLevel;
  return NativeRefusal::kNone;
}

}  // namespace overdrive::engine
