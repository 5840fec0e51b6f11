// Whether the process runs under a sanitizer. The address sanitizer sees the library alone, so the macros that
// tell of it are not set where tests are compiled; its runtime is in the process all the same.
#pragma once

#include <pthread.h>

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __asan_handle_no_return();
__attribute__((weak)) void __tsan_init();
}

namespace overdrive::test {

inline bool sanitized() { return &__asan_init != nullptr || &__tsan_init != nullptr; }

// pthread_exit() as a caller that the address sanitizer sees makes it: the frames that it unwinds are no longer
// looked at.
[[noreturn]] inline void end_thread(void* value = nullptr) {
  if (&__asan_handle_no_return != nullptr) __asan_handle_no_return();
  pthread_exit(value);
}

}  // namespace overdrive::test
