// The thread that runs the nodes of one device for all backwards, in its queue's order.
// Owned by WorkerGroup. Starts in the constructor, sleeps when there is nothing to do, ends and is joined
// by stop(). Knows its queue and its device; the run of a task (SharedRun) knows how to run it.
#pragma once

#include "engine/devices/device_queue.h"
#include "engine/host/host_frame.h"
#include "engine/run/thread_context.h"

#include <atomic>
#include <memory>
#include <thread>

namespace torch::autograd {
struct ReadyQueue;
}

namespace overdrive::engine {

class Worker;
using TaskQueue = DeviceQueue<ReadyTask>;

// How long a run keeps a worker that has entered it.
enum class WorkerRetention {
  kForOneTask,        // for the task: the worker waits for a run of its own, and serves this one meanwhile
  kWhileThereIsMore,  // while its queue has a task of the run
  kUntilTheRunEnds,   // while the run has tasks; asleep, if need be
};

// A run that workers take part in. Their queues hold tasks of such runs only.
class SharedRun : public AnyRun {
 public:
  // Called by a worker on its thread, without a lock: runs `task` inside the run's graph task. Throws nothing.
  virtual void work(Worker& worker, ReadyTask task, WorkerRetention retention) = 0;

 protected:
  ~SharedRun() = default;
};
inline SharedRun& shared_run_of(const ReadyTask& task) { return static_cast<SharedRun&>(*task.run); }

class Worker {
 public:
  // By WorkerGroup, under its lock. Throws std::system_error when the system refuses a thread.
  Worker(HostEngine& engine, c10::Device device);
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // On any thread, while a WorkerLease holds the worker.
  c10::Device device() const { return device_; }
  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }

  // The host's queue of this thread, through which frames are entered. Of the worker's thread only.
  const std::shared_ptr<torch::autograd::ReadyQueue>& host_queue() const { return host_queue_; }

  // By WorkerGroup or the last owner, without a lock and never on the thread itself. Waits for the thread to
  // end, which it does when its queue is empty.
  void stop();

 private:
  // The body of the thread: takes tasks until stop() is called and the queue is empty.
  void serve();

  // Fixed before the thread starts.
  HostEngine& engine_;
  const c10::Device device_;
  const std::shared_ptr<TaskQueue> queue_;
  const std::shared_ptr<torch::autograd::ReadyQueue> host_queue_;
  // Set by stop(), read by the thread: the release of the one meets the acquire of the other.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace overdrive::engine
