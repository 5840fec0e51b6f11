// A value that is never destroyed, for statics that other threads or exit handlers may use while the process
// ends. Owned by the process. A function-local static of this type is built thread-safely; use of the value is
// as safe as the value.
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
