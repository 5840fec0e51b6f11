#include "engine/base/job_thread.h"

#include "engine/base/no_destructor.h"

#include <pthread.h>
#include <unistd.h>

#include <new>

namespace overdrive::base {

// The threads of the process. At exit they end before LibTorch's statics go, which were there first.
struct JobThread::OfProcess {
  static OfProcess& get() {
    static NoDestructor<OfProcess> all;
    return *all;
  }

  OfProcess() {
    std::atexit([] {
      for (JobThread& thread : get().threads) thread.stop(/*drop_jobs=*/true);
    });
  }

  ProcessMutex mutex{"job threads"};
  std::deque<JobThread> threads;  // added to under the lock
};

JobThread& JobThread::of_process(std::string name) {
  OfProcess& all = OfProcess::get();
  const MutexLock lock(all.mutex);
  return all.threads.emplace_back(std::move(name));
}

JobThread::~JobThread() { stop(/*drop_jobs=*/false); }

void JobThread::stop(bool drop_jobs) {
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    if (drop_jobs) dropped.swap(jobs_);
    if (process_ != ::getpid()) {
      // Of a parent process: there is nothing to join, and nobody to tell.
      if (thread_.joinable()) new (&thread_) std::thread;
      return;
    }
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void JobThread::push(std::function<void()> job) {
  {
    const MutexLock lock(mutex_);
    if (stop_) return;
    if (process_ != ::getpid()) {
      if (thread_.joinable()) new (&thread_) std::thread;
      new (&changed_) std::condition_variable;  // after fork() the parent's thread still waits on it
      thread_ = std::thread([this] { loop(); });
      process_ = ::getpid();
    }
    jobs_.push_back(std::move(job));  // where there is a thread: a refused job may be gone tomorrow
  }
  changed_.notify_one();
}

void JobThread::loop() {
  pthread_setname_np(pthread_self(), name_.c_str());
  MutexLock lock(mutex_);
  while (true) {
    lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace overdrive::base
