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

// A run that workers take part in. Their queues hold tasks of such runs only.
class SharedRun : public AnyRun {
 public:
  enum class Stay { kForOneTask, kWhileThereIsMore, kToTheEnd };
  // Called by a worker on its thread: runs `task` inside the run's graph task. Throws nothing.
  virtual void work(Worker& worker, ReadyTask task, Stay stay) = 0;

 protected:
  ~SharedRun() = default;
};
inline SharedRun& shared_run_of(const ReadyTask& task) { return static_cast<SharedRun&>(*task.run); }

class Worker {
 public:
  // Throws std::system_error when the system refuses a thread.
  Worker(HostEngine& engine, c10::Device device);
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  c10::Device device() const { return device_; }
  const std::shared_ptr<TaskQueue>& queue() const { return queue_; }

  // The host's queue of this thread, through which frames are entered. Of the worker's thread only.
  const std::shared_ptr<torch::autograd::ReadyQueue>& host_queue() const { return host_queue_; }

  // Waits for the thread to end, which it does when its queue is empty. Not from the thread itself.
  void stop();

 private:
  void serve();

  HostEngine& engine_;
  const c10::Device device_;
  const std::shared_ptr<TaskQueue> queue_;
  const std::shared_ptr<torch::autograd::ReadyQueue> host_queue_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace overdrive::engine
