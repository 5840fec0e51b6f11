// A system that has no more threads to give, while `refuse_threads` is set, or that refuses the next few.
// Defines a function that stands before the C library's, so one source of a program includes this header.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace overdrive::test {
inline std::atomic<bool> refuse_threads{false};
inline std::atomic<int> threads_to_refuse{0};

inline bool refuses_a_thread() {
  int left = threads_to_refuse.load();
  while (left > 0 && !threads_to_refuse.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0 || refuse_threads.load();
}
}  // namespace overdrive::test

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  static auto* const real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return overdrive::test::refuses_a_thread() ? EAGAIN : real(thread, attributes, body, argument);
}
