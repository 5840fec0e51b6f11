#include "engine/thread_state.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <exception>

namespace overdrive::engine {

ThreadModes ThreadModes::read() {
  const auto& keys = c10::impl::raw_local_dispatch_key_set;
  const auto& saved_hooks = at::SavedTensorDefaultHooks::get_tls_state();
  const auto& record_function = at::get_record_function_tls_();
  return {
      .included_keys = keys.included_,
      .excluded_keys = keys.excluded_,
      .autograd_bits = bits_of(c10::AutogradState::get_tls_state()),
      .record_function_on = record_function.tls_record_function_enabled_,
      .record_function_callbacks = record_function.sorted_tls_callbacks_.size(),
      .saved_hooks_on = !saved_hooks.disabled_error_message.has_value(),
      .saved_hooks = saved_hooks.stack.size(),
      .reapply_views = at::functionalization::impl::getFunctionalizationReapplyViewsTLS(),
      .autocast_cpu_dtype = static_cast<int>(at::autocast::get_autocast_dtype(at::kCPU)),
      .autocast_gpu_dtype = static_cast<int>(at::autocast::get_autocast_dtype(at::kCUDA)),
      .debug_info = c10::ThreadLocalDebugInfo::current().get(),
      .functorch = at::functorch::functorchTLSAccessor().get(),
      .warning_handler = c10::WarningUtils::get_warning_handler(),
  };
}

ThreadState::ThreadState(Watch watch, bool grad_mode, const at::ThreadLocalState* whole)
    : keys_(&c10::impl::raw_local_dispatch_key_set),
      autograd_(&c10::AutogradState::get_tls_state()),
      watch_(watch),
      grad_mode_(grad_mode),
      grad_mode_before_(autograd_->get_grad_mode()),
      exceptions_before_(std::uncaught_exceptions()),
      whole_(whole) {
  autograd_->set_grad_mode(grad_mode);
  if (watch == Watch::kUserCode) {
    modes_ = ThreadModes::read();
    if (whole_ == nullptr) whole_ = &own_.emplace();
  } else {
    modes_.included_keys = keys_->included_;
    modes_.excluded_keys = keys_->excluded_;
    modes_.autograd_bits = ThreadModes::bits_of(*autograd_);
    autograd_before_ = *autograd_;
  }
}

ThreadState::~ThreadState() {
  if (std::uncaught_exceptions() > exceptions_before_) restore_after_user_code();
  autograd_->set_grad_mode(grad_mode_before_);
}

void ThreadState::restore_after_user_code() {
  if (watch_ == Watch::kHostCode) {
    restore_after_host_code();
  } else if (quick_look_differs() || !(ThreadModes::read() == modes_))
    repair();
}

void ThreadState::repair() {
  if (watch_ == Watch::kHostCode) {
    c10::AutogradState::set_tls_state(*autograd_before_);
    const c10::impl::PODLocalDispatchKeySet keys{modes_.included_keys, modes_.excluded_keys};
    c10::impl::_force_tls_local_dispatch_key_set(c10::impl::LocalDispatchKeySet(keys));
    return;
  }
  at::ThreadLocalState::setThreadLocalState(*whole_);
  autograd_->set_grad_mode(grad_mode_);  // `whole` may be another run's
  c10::WarningUtils::set_warning_handler(modes_.warning_handler);
  modes_ = ThreadModes::read();  // the functorch state is a new copy
}

const at::ThreadLocalState* ThreadState::whole_if_unchanged() const {
  if (watch_ != Watch::kUserCode) return nullptr;
  ThreadModes now = ThreadModes::read();
  constexpr uint32_t kGradMode = 1;
  now.autograd_bits = (now.autograd_bits & ~kGradMode) | (modes_.autograd_bits & kGradMode);
  now.warning_handler = modes_.warning_handler;  // not part of the copy
  return now == modes_ ? whole_ : nullptr;
}

}  // namespace overdrive::engine
