#include "engine/devices/worker.h"

#include "engine/base/counters.h"

#include <pthread.h>

#include <cstdio>

namespace overdrive::engine {
namespace {

// For debuggers and `top`; the system takes 15 characters, and the index matters most.
void name_thread(c10::Device device) {
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  char name[32];
  std::snprintf(name, sizeof name, "od-%.8s:%d", type.c_str(), static_cast<int>(device.index()));
  pthread_setname_np(pthread_self(), name);
}

}  // namespace

Worker::Worker(HostEngine& engine, c10::Device device)
    : engine_(engine),
      device_(device),
      queue_(std::make_shared<TaskQueue>()),
      host_queue_(std::make_shared<torch::autograd::ReadyQueue>()),
      thread_([this] { engine_.live_as_host_thread(host_queue_, [this] { serve(); }); }) {
  count(base::counts::threads);
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  queue_->wake();
  thread_.join();
}

void Worker::serve() {
  name_thread(device_);
  thread_context().worker = this;
  const auto any = [](const ReadyTask&) { return true; };
  const auto over = [this] { return stopping_.load(std::memory_order_acquire); };
  while (std::optional<ReadyTask> task = queue_->take(any, over, WaitPolicy::kSleep)) {
    SharedRun& run = shared_run_of(*task);
    run.work(*this, *std::move(task), WorkerRetention::kWhileThereIsMore);
  }
}

}  // namespace overdrive::engine
