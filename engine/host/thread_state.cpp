#include "engine/host/thread_state.h"

#include "engine/base/no_destructor.h"

#include <pthread.h>

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <exception>
#include <system_error>
#include <thread>

namespace overdrive::engine {

ThreadLocals::ThreadLocals()
    : keys(c10::impl::raw_local_dispatch_key_set),
      autograd(c10::AutogradState::get_tls_state()),
      record_function(at::get_record_function_tls_()),
      saved_hooks(at::SavedTensorDefaultHooks::get_tls_state()),
      functorch(at::functorch::functorchTLSAccessor()) {}

// Inlined, so that a comparison keeps what it reads in registers.
[[gnu::always_inline]] inline ThreadModes ThreadModes::read(const ThreadLocals& locals) {
  ThreadModes modes;
  modes.included_keys = locals.keys.included_;
  modes.excluded_keys = locals.keys.excluded_;
  modes.autograd_bits = bits_of(locals.autograd);
  modes.record_function_on = locals.record_function.tls_record_function_enabled_;
  modes.record_function_callbacks = mark_of(locals.record_function);
  modes.saved_hooks_on = !locals.saved_hooks.disabled_error_message.has_value();
  modes.saved_hooks = locals.saved_hooks.stack.size();
  modes.reapply_views = at::functionalization::impl::getFunctionalizationReapplyViewsTLS();
  modes.autocast_cpu_type = at::autocast::get_autocast_dtype(at::kCPU);
  modes.autocast_gpu_type = at::autocast::get_autocast_dtype(at::kCUDA);
  modes.debug_info = c10::ThreadLocalDebugInfo::current().get();
  modes.functorch = locals.functorch.get();
  modes.warning_handler = c10::WarningUtils::get_warning_handler();
  return modes;
}

ThreadState::ThreadState(Code code, bool grad_mode, const at::ThreadLocalState* whole)
    : code_(code),
      grad_mode_(grad_mode),
      grad_mode_before_(locals_.autograd.get_grad_mode()),
      exceptions_before_(std::uncaught_exceptions()),
      whole_(whole) {
  locals_.autograd.set_grad_mode(grad_mode);
  if (code == Code::kUser) {
    modes_ = ThreadModes::read(locals_);
    if (whole_ == nullptr) whole_ = &own_.emplace();
  } else {
    modes_.included_keys = locals_.keys.included_;
    modes_.excluded_keys = locals_.keys.excluded_;
    modes_.autograd_bits = ThreadModes::bits_of(locals_.autograd);
    autograd_before_ = locals_.autograd;
  }
}

ThreadState::~ThreadState() {
  if (std::uncaught_exceptions() > exceptions_before_) restore_after_user_code();
  locals_.autograd.set_grad_mode(grad_mode_before_);
}

void ThreadState::restore_after_user_code() {
  if (code_ == Code::kHost) {
    restore_after_host_code();
  } else if (is_in_layer() || !(ThreadModes::read(locals_) == modes_)) {
    repair();
  }
}

void ThreadState::repair() {
  if (code_ == Code::kHost) {
    c10::AutogradState::set_tls_state(*autograd_before_);
    const c10::impl::PODLocalDispatchKeySet keys{modes_.included_keys, modes_.excluded_keys};
    c10::impl::_force_tls_local_dispatch_key_set(c10::impl::LocalDispatchKeySet(keys));
    return;
  }
  at::ThreadLocalState::setThreadLocalState(*whole_);
  locals_.autograd.set_grad_mode(grad_mode_);  // `whole` may belong to another run
  c10::WarningUtils::set_warning_handler(modes_.warning_handler);
  modes_ = ThreadModes::read(locals_);  // the functorch state is a new copy
}

const at::ThreadLocalState* ThreadState::whole_if_unchanged() const {
  if (code_ != Code::kUser || is_in_layer()) return nullptr;
  ThreadModes now = ThreadModes::read(locals_);
  constexpr uint32_t kGradMode = 1;
  now.autograd_bits = (now.autograd_bits & ~kGradMode) | (modes_.autograd_bits & kGradMode);
  now.warning_handler = modes_.warning_handler;  // not part of the copy
  return now == modes_ ? whole_ : nullptr;
}

void call_on_new_thread(const std::function<void()>& body) {
  const at::ThreadLocalState state;
  c10::WarningHandler* const warnings = c10::WarningUtils::get_warning_handler();
  std::exception_ptr error;
  bool over = false;  // not if the body ended its thread
  std::thread thread;
  try {
    thread = std::thread([&] {
      pthread_setname_np(pthread_self(), "od-deep");
      try {
        at::init_num_threads();
        const at::ThreadLocalStateGuard same_state(state);
        const c10::WarningUtils::WarningHandlerGuard same_warnings(warnings);
        body();
        over = true;
      } catch (...) {
        if (base::thread_is_ending()) throw;
        error = std::current_exception();
        over = true;
      }
    });
  } catch (const std::system_error& refused) {
    TORCH_WARN_ONCE("Overdrive: no thread for a deeply nested backward (", refused.what(),
                    "); it goes on on its caller's stack.");
    body();
    return;
  }
  thread.join();
  if (!over) pthread_exit(PTHREAD_CANCELED);
  if (error) std::rethrow_exception(std::move(error));
}

}  // namespace overdrive::engine
