// The part of our Engine subclass that makes threads of the host's: a worker's thread lives inside the host's
// own loop. The base of OverdriveEngine, so that frames and workers need not know that. Any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <functional>
#include <memory>

namespace overdrive::engine {

class HostEngine : public base::EngineBefore {
 public:
  // Makes the calling thread, a new one of ours, one of the host's threads and runs `body` there. The tasks for
  // run_host_queue() come through `queue`.
  virtual void live_as_host_thread(const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                                   const std::function<void()>& body);
  // The host's own loop over the queue of such a thread, until a shutdown task comes.
  void run_host_queue() { Engine::thread_main(nullptr); }

 protected:
  void thread_main(const std::shared_ptr<base::GraphTask>& task) override;
};

}  // namespace overdrive::engine
