// Tells an error from the end of the thread in a catch (...). pthread_exit() and pthread_cancel() unwind their
// thread. A catch block must rethrow this unwinding, or the system ends the process. No state; any thread.
#pragma once

#include <exception>

namespace overdrive::base {

// In a catch (...).
inline bool thread_is_ending() noexcept { return std::current_exception() == nullptr; }

}  // namespace overdrive::base
