// std::mutex and its scoped lock as types that clang's thread-safety analysis knows, because libstdc++ does not
// annotate std::mutex. Owned by the object with the guarded fields; any thread. The fields name their mutex
// with OVERDRIVE_GUARDED_BY: the analysis checks at build time that code touches a field under its lock only.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

// Names for the analysis; empty for other compilers.
#if defined(__clang__)
#define OVERDRIVE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define OVERDRIVE_THREAD_ANNOTATION(x)
#endif

// On a type: a lock, or an object that holds a lock during its life.
#define OVERDRIVE_CAPABILITY(name) OVERDRIVE_THREAD_ANNOTATION(capability(name))
#define OVERDRIVE_SCOPED_CAPABILITY OVERDRIVE_THREAD_ANNOTATION(scoped_lockable)

// On a field: the lock of the field, or the lock of the object behind a pointer.
#define OVERDRIVE_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(guarded_by(mutex))
#define OVERDRIVE_PT_GUARDED_BY(mutex) OVERDRIVE_THREAD_ANNOTATION(pt_guarded_by(mutex))

// On a function: locks that its caller must hold, must not hold, and locks that the function takes or releases.
#define OVERDRIVE_REQUIRES(...) OVERDRIVE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define OVERDRIVE_EXCLUDES(...) OVERDRIVE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define OVERDRIVE_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define OVERDRIVE_RELEASE(...) OVERDRIVE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define OVERDRIVE_TRY_ACQUIRE(...) OVERDRIVE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))

// On a function whose locking the analysis cannot follow. Give the reason beside the function.
#define OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS OVERDRIVE_THREAD_ANNOTATION(no_thread_safety_analysis)

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
