// A value of each thread that lives longer than the thread's thread_locals: a tensor that one of these frees
// may run the program's code, which uses the value. Owned by its thread, made when first asked for and freed by
// a pthread key, after the thread_locals. Should it be asked for once more, the thread gets another. One for
// each type, so a unit gives a type of its own.
#pragma once

#include <pthread.h>

namespace overdrive::base {

template <typename T>
class OfThread {
 public:
  static T& get() {
    if (value_ == nullptr) [[unlikely]]
      make();
    return *value_;
  }

 private:
  struct Key {
    pthread_key_t number{};
    // Without a key, as when the process has used up all that there are, the values of ended threads stay.
    bool made = pthread_key_create(&number, [](void* value) {
                  value_ = nullptr;
                  delete static_cast<T*>(value);
                }) == 0;
  };

  [[gnu::noinline]] static void make() {
    static const Key key;
    value_ = new T;
    if (key.made) pthread_setspecific(key.number, value_);
  }

  static inline constinit thread_local T* value_ = nullptr;
};

}  // namespace overdrive::base
