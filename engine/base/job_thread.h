// A thread that does one job after the other, in order. Owned by who gives it jobs; started by the first
// one, joined in the destructor after the jobs that are left. Any thread may push. Jobs do not throw. A child
// of fork() has no such thread and starts its own.
#pragma once

#include "engine/base/mutex.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <string>
#include <thread>

namespace overdrive::base {

class JobThread {
 public:
  // A thread's name, 15 characters at most.
  explicit JobThread(std::string name) : name_(std::move(name)) {}
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  // Throws std::system_error when the system refuses the thread; the job is not kept then.
  void push(std::function<void()> job) OVERDRIVE_EXCLUDES(mutex_);
  // Ends the thread after the jobs that are left. What is pushed afterwards is dropped.
  void stop() OVERDRIVE_EXCLUDES(mutex_);

  // Around fork(), for a thread whose mutex the child may want.
  void hold() OVERDRIVE_ACQUIRE(mutex_) { mutex_.lock(); }
  void let_go() OVERDRIVE_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  void loop() OVERDRIVE_EXCLUDES(mutex_);

  const std::string name_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_ OVERDRIVE_GUARDED_BY(mutex_);
  bool stop_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  int process_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // in which the thread runs
  std::thread thread_;
};

}  // namespace overdrive::base
