// The tasks that are ready for one device, best first. Any thread may push() and wake(). One thread takes, also
// from inside a task that it took. Owned together by its worker and by every run that may still push. Never
// runs a task.
#pragma once

#include "engine/base/mutex.h"
#include "engine/devices/spin.h"
#include "engine/plan/ready_heap.h"

#include <atomic>
#include <optional>

namespace overdrive::engine {

// The behaviour of take() on an empty queue.
enum class WaitPolicy {
  kNone,        // give up
  kSleep,       // until there is
  kLookAround,  // stay awake for a moment, then sleep
};

// Task: movable, with a member `TaskRank rank`.
template <typename Task>
class DeviceQueue {
 public:
  void push(Task&& task) OVERDRIVE_EXCLUDES(mutex_) {
    bool roused;
    {
      base::MutexLock lock(mutex_);
      tasks_.push(std::move(task));
      size_.store(tasks_.size(), std::memory_order_release);
      roused = rouse();
    }
    if (roused) changed_.notify_one();
  }

  // The best task; or nothing when `over()` holds, the best task is not `wanted`, or `policy` has it give up.
  // Code that makes `over()` true must call wake() afterwards when the thread may sleep. `over` is called with
  // and without the queue's lock and must take no lock.
  template <typename Wanted, typename Over>
  std::optional<Task> take(Wanted&& wanted, Over&& over, WaitPolicy policy) OVERDRIVE_EXCLUDES(mutex_) {
    if (policy == WaitPolicy::kNone && !has_tasks()) return std::nullopt;
    if (policy == WaitPolicy::kLookAround) spin_until([&] { return has_tasks() || over(); });
    base::MutexLock lock(mutex_);
    while (policy != WaitPolicy::kNone && tasks_.empty() && !over()) sleep(lock);
    if (over() || tasks_.empty() || !wanted(tasks_.top())) return std::nullopt;
    return pop();
  }

  // The same as push(task) and then take(), for the thread that takes. Takes no lock on an empty queue.
  template <typename Wanted>
  std::optional<Task> exchange(Task&& task, Wanted&& wanted) OVERDRIVE_EXCLUDES(mutex_) {
    if (!has_tasks() && wanted(task)) return std::move(task);
    base::MutexLock lock(mutex_);
    tasks_.push(std::move(task));
    size_.store(tasks_.size(), std::memory_order_release);
    if (!wanted(tasks_.top())) return std::nullopt;
    return pop();
  }

  // Makes the thread that sleeps ask `over()` again.
  void wake() OVERDRIVE_EXCLUDES(mutex_) {
    bool roused;
    {
      base::MutexLock lock(mutex_);
      roused = rouse();
    }
    if (roused) changed_.notify_one();
  }

 private:
  bool has_tasks() const { return size_.load(std::memory_order_acquire) != 0; }

  Task pop() OVERDRIVE_REQUIRES(mutex_) {
    Task best = tasks_.pop();
    size_.store(tasks_.size(), std::memory_order_release);
    return best;
  }

  void sleep(base::MutexLock& lock) OVERDRIVE_REQUIRES(mutex_) {
    asleep_ = true;
    lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) { return !asleep_; });
  }
  // True once for each sleep: a thread that is on its way up needs no second call.
  bool rouse() OVERDRIVE_REQUIRES(mutex_) {
    if (!asleep_) return false;
    asleep_ = false;
    return true;
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  ReadyHeap<Task> tasks_ OVERDRIVE_GUARDED_BY(mutex_);
  bool asleep_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> size_{0};  // of tasks_, for a look without the lock
};

}  // namespace overdrive::engine
