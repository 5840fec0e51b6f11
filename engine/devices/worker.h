// The thread that runs the nodes of one device, in its queue's order, whichever backward they belong to.
// Owned by WorkerGroup. Starts in the constructor, sleeps when there is nothing to do, ends and is joined
// by stop(). Knows its queue and its device; DeviceRun knows what to do with a task.
#pragma once

#include "engine/devices/device_task.h"

#include <atomic>
#include <memory>
#include <thread>

namespace torch::autograd {
struct ReadyQueue;
}

namespace overdrive::engine {

class OverdriveEngine;

class Worker {
 public:
  // Throws std::system_error when the system refuses a thread.
  Worker(OverdriveEngine& engine, c10::Device device);
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

  OverdriveEngine& engine_;
  const c10::Device device_;
  const std::shared_ptr<TaskQueue> queue_;
  const std::shared_ptr<torch::autograd::ReadyQueue> host_queue_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace overdrive::engine
