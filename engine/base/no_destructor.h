// A value built in place and never destroyed, for statics that other threads or exit
// handlers may still use while the process ends. Owned by the process. Building one as
// a function-local static is thread-safe; using the value is as safe as the value is.
#pragma once

#include <new>
#include <utility>

namespace overdrive::base {

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

}  // namespace overdrive::base
