// Whether what a catch (...) caught is an error or the end of the thread. pthread_exit() and
// pthread_cancel() unwind the thread that they end; who catches that must rethrow it, or the system ends
// the process. Any thread.
#pragma once

#include <exception>

namespace overdrive::base {

// In a catch (...).
inline bool thread_is_ending() noexcept { return std::current_exception() == nullptr; }

}  // namespace overdrive::base
