#include "engine/host/host_engine.h"

namespace overdrive::engine {
namespace {

// The body of a new thread of ours, for the moment when the host has set the thread up.
constinit thread_local const std::function<void()>* life_of_thread = nullptr;

}  // namespace

void HostEngine::live_as_host_thread(const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                                     const std::function<void()>& body) {
  life_of_thread = &body;
  // Calls thread_main(). The host takes the thread for a CPU thread: workers set the current device themselves.
  Engine::thread_init(torch::autograd::CPU_DEVICE, queue, /*should_increment=*/false);
}

void HostEngine::thread_main(const std::shared_ptr<base::GraphTask>& task) {
  if (const auto* const life = std::exchange(life_of_thread, nullptr)) {
    (*life)();
  } else {
    Engine::thread_main(task);
  }
}

}  // namespace overdrive::engine
