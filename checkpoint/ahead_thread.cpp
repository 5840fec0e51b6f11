#include "checkpoint/ahead_thread.h"

#include "engine/base/no_destructor.h"

#include <pthread.h>

#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

namespace overdrive::checkpoint {

AheadThread& AheadThread::get() {
  static base::NoDestructor<AheadThread> thread;
  return *thread;
}

AheadThread::AheadThread() {
  pthread_atfork(lock_before_fork, unlock_in_parent, start_afresh_in_child);
  std::atexit([] { get().end(); });
}

void AheadThread::order(std::shared_ptr<AheadRun> run) {
  {
    const base::MutexLock lock(mutex_);
    if (ending_) return;
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread([this] { serve(); });
      } catch (const std::system_error&) {
        return;  // the node will do it in its turn
      }
    }
    ordered_.push_back(std::move(run));
  }
  changed_.notify_one();
}

void AheadThread::serve() {
  pthread_setname_np(pthread_self(), "overdrive-ahead");
  base::MutexLock lock(mutex_);
  while (true) {
    lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) { return ending_ || !ordered_.empty(); });
    if (ending_) return;
    std::shared_ptr<AheadRun> run = std::move(ordered_.front());
    ordered_.pop_front();
    lock.unlock();
    run->surroundings().take_over();
    run->run();
    run.reset();  // what it holds goes without the lock
    lock.lock();
  }
}

void AheadThread::end() {
  std::thread ended;
  {
    const base::MutexLock lock(mutex_);
    ending_ = true;
    ended = std::move(thread_);
  }
  changed_.notify_all();
  if (ended.joinable()) ended.join();
}

void AheadThread::lock_before_fork() { get().mutex_.lock(); }
void AheadThread::unlock_in_parent() { get().mutex_.unlock(); }
void AheadThread::start_afresh_in_child() {
  AheadThread& all = get();
  // What was ordered belongs to backwards of the parent, and may be half done: left where it is.
  new (&all.ordered_) std::deque<std::shared_ptr<AheadRun>>;
  new (&all.changed_) std::condition_variable;
  if (all.thread_.joinable()) new (&all.thread_) std::thread;
  all.mutex_.unlock();
}

}  // namespace overdrive::checkpoint
