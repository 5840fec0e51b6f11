// std::mutex and its scoped lock as types that clang's thread-safety analysis knows, because libstdc++ does not
// annotate std::mutex. Owned by the object with the guarded fields; any thread. The fields name their mutex
// with OVERDRIVE_GUARDED_BY.
#pragma once

#include "engine/base/thread_annotations.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace overdrive::base {

class OVERDRIVE_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() OVERDRIVE_ACQUIRE() { impl_.lock(); }
  void unlock() OVERDRIVE_RELEASE() { impl_.unlock(); }
  bool try_lock() OVERDRIVE_TRY_ACQUIRE(true) { return impl_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex impl_;
};

// Holds a Mutex from construction to destruction, and may release it in between.
class OVERDRIVE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) OVERDRIVE_ACQUIRE(mutex) : lock_(mutex.impl_) {}
  ~MutexLock() OVERDRIVE_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() OVERDRIVE_RELEASE() { lock_.unlock(); }
  void lock() OVERDRIVE_ACQUIRE() { lock_.lock(); }

  // Releases the mutex until ready() is true. ready() runs with the mutex held. The analysis does not see this
  // through a lambda, so give the lambda OVERDRIVE_REQUIRES(m).
  template <typename Ready>
  void wait(std::condition_variable& changed, Ready&& ready) {
    changed.wait(lock_, std::forward<Ready>(ready));
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace overdrive::base
