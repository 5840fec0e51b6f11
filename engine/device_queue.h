// The tasks that are ready for one device, best first. Any thread may push and wake; one thread takes,
// and it may do so again from inside a task that it took. Shared by whoever may still push. Does not
// know what a task is and never runs one.
#pragma once

#include "engine/base/mutex.h"
#include "engine/ready_heap.h"
#include "engine/spin.h"

#include <atomic>
#include <optional>

namespace overdrive::engine {

// Task: movable, with a member `TaskRank rank`.
template <typename Task>
class DeviceQueue {
 public:
  void push(Task&& task) OVERDRIVE_EXCLUDES(mutex_) {
    bool asleep;
    {
      base::MutexLock lock(mutex_);
      tasks_.push(std::move(task));
      size_.store(tasks_.size(), std::memory_order_release);
      asleep = asleep_;
    }
    if (asleep) changed_.notify_one();
  }

  // The best task, or nothing once `over()` holds. Without a task, waits for either. Who makes `over()` true
  // calls wake() afterwards. `look` says whether to look around for a moment before
  // falling asleep. `over` may be called with and without the queue's lock and must take none.
  template <typename Over>
  std::optional<Task> take(Over&& over, Look look) OVERDRIVE_EXCLUDES(mutex_) {
    if (look == Look::kAMoment) spin_until([&] { return has_tasks() || over(); });
    base::MutexLock lock(mutex_);
    const auto has_reason = [&]() OVERDRIVE_REQUIRES(mutex_) { return !tasks_.empty() || over(); };
    if (!has_reason()) {
      asleep_ = true;
      lock.wait(changed_, has_reason);
      asleep_ = false;
    }
    return over() ? std::nullopt : std::optional<Task>(pop());
  }

  // The best task if it is `wanted`. Never sleeps: without a task it looks around for a moment, or until
  // `over()` holds.
  template <typename Wanted, typename Over>
  std::optional<Task> take_if(Wanted&& wanted, Over&& over) OVERDRIVE_EXCLUDES(mutex_) {
    spin_until([&] { return has_tasks() || over(); });
    base::MutexLock lock(mutex_);
    return tasks_.empty() || !wanted(tasks_.top()) ? std::nullopt : std::optional<Task>(pop());
  }

  // Makes the thread that waits ask `over()` again.
  void wake() OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    if (asleep_) changed_.notify_one();
  }

 private:
  bool has_tasks() const { return size_.load(std::memory_order_acquire) != 0; }

  Task pop() OVERDRIVE_REQUIRES(mutex_) {
    Task best = tasks_.pop();
    size_.store(tasks_.size(), std::memory_order_release);
    return best;
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  ReadyHeap<Task> tasks_ OVERDRIVE_GUARDED_BY(mutex_);
  bool asleep_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> size_{0};  // of tasks_, for a look without the lock
};

}  // namespace overdrive::engine
