// Two tools for the end of a process and of a thread. Any thread.
#pragma once

#include <exception>
#include <new>
#include <utility>

namespace overdrive::base {

// A value that is never destroyed, for statics that other threads or exit handlers may use while the process
// ends. Owned by the process. A function-local static of this type is built thread-safely; use of the value is
// as safe as the value.
template <typename T>
class NoDestructor {
 public:
  template <typename... Args>
  explicit NoDestructor(Args&&... args) {
    new (bytes_) T(std::forward<Args>(args)...);
  }
  NoDestructor(const NoDestructor&) = delete;
  NoDestructor& operator=(const NoDestructor&) = delete;

  T& operator*() { return *get(); }
  T* operator->() { return get(); }
  T* get() { return std::launder(reinterpret_cast<T*>(bytes_)); }

 private:
  alignas(T) unsigned char bytes_[sizeof(T)];
};

// In a catch (...): tells an error from the end of the thread. pthread_exit() and pthread_cancel() unwind their
// thread. A catch block must rethrow this unwinding, or the system ends the process.
inline bool thread_is_ending() noexcept { return std::current_exception() == nullptr; }

}  // namespace overdrive::base
