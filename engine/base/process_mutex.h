// Locks that are free in every child of fork(): one handler takes all of them before the fork and gives them
// back in the parent and in the child, so no child finds a lock held by a thread that is gone. For locks of the
// process, and for objects of which there are few. Any thread may make, destroy and take them. Locks of small
// objects (a level, a packed tensor, a queue) are plain Mutexes: a child leaves such an object alone when
// another thread used the object at the fork.
#pragma once

#include "engine/base/export.h"
#include "engine/base/mutex.h"

#include <pthread.h>

#include <atomic>
#include <vector>

namespace overdrive::base {

// A lock on the list of the fork handler. A lock must not move.
class HeldAtFork {
 public:
  HeldAtFork(const HeldAtFork&) = delete;
  HeldAtFork& operator=(const HeldAtFork&) = delete;

  const char* name() const { return name_; }
  virtual bool try_hold() = 0;
  virtual void let_go() = 0;
  // In a child, when all locks are free again. The child has one thread.
  void begin_child() {
    if (in_child_ != nullptr) in_child_();
  }

 protected:
  using InChild = void (*)();
  HeldAtFork(const char* name, InChild in_child);
  ~HeldAtFork();

 private:
  const char* const name_;
  const InChild in_child_;
};

class OVERDRIVE_CAPABILITY("mutex") ProcessMutex final : public Mutex, public HeldAtFork {
 public:
  // `name` is a literal, for docs/threading.md and its test.
  explicit ProcessMutex(const char* name, InChild in_child = nullptr) : HeldAtFork(name, in_child) {}

  bool try_hold() override OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS { return try_lock(); }
  void let_go() override OVERDRIVE_NO_THREAD_SAFETY_ANALYSIS { unlock(); }
};

// The holding thread may take this lock again, and may fork. (The system's recursive mutex knows its owner by
// a number that a child does not have.) For std::unique_lock.
class RecursiveProcessMutex final : public HeldAtFork {
 public:
  explicit RecursiveProcessMutex(const char* name) : HeldAtFork(name, nullptr) {}

  void lock();
  void unlock();

  bool try_hold() override;
  void let_go() override { unlock(); }

 private:
  bool is_mine() const;
  void take();

  std::mutex mutex_;
  std::atomic<bool> is_held_{false};
  std::atomic<pthread_t> owner_{};  // while held
  int depth_ = 0;                   // of the owner
};

// For the test of forks: the locks that there are now.
OVERDRIVE_API std::vector<HeldAtFork*> locks_held_at_fork();

}  // namespace overdrive::base
