#include "engine/run/new_thread.h"

#include "engine/base/thread_end.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <exception>
#include <system_error>
#include <thread>

namespace overdrive::engine {

void call_on_new_thread(const std::function<void()>& body) {
  const at::ThreadLocalState state;
  c10::WarningHandler* const warnings = c10::WarningUtils::get_warning_handler();
  std::exception_ptr error;
  bool over = false;  // not if the body ended its thread
  std::thread thread;
  try {
    thread = std::thread([&] {
      pthread_setname_np(pthread_self(), "od-deep");
      at::init_num_threads();
      const at::ThreadLocalStateGuard same_state(state);
      const c10::WarningUtils::WarningHandlerGuard same_warnings(warnings);
      try {
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
