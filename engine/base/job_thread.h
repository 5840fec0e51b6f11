// A thread that does one job after the other, in order. Owned by the object that gives it jobs; the first job
// starts it, the destructor joins it after the jobs that are left. Any thread may push. Jobs do not throw. A
// child of fork() has no such thread and starts its own.
#pragma once

#include "engine/base/process_mutex.h"

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

  // A new thread that belongs to the process: its object is never destroyed. At exit the thread ends, and
  // drops the jobs that it has not begun.
  static JobThread& of_process(std::string name);

  // Throws std::system_error when the system refuses the thread; the job is not kept then.
  void push(std::function<void()> job) OVERDRIVE_EXCLUDES(mutex_);

 private:
  struct OfProcess;

  void stop(bool drop_jobs) OVERDRIVE_EXCLUDES(mutex_);
  void loop() OVERDRIVE_EXCLUDES(mutex_);

  const std::string name_;
  ProcessMutex mutex_{"a job thread"};
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_ OVERDRIVE_GUARDED_BY(mutex_);
  bool stop_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  int process_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // in which the thread runs
  std::thread thread_;
};

}  // namespace overdrive::base
