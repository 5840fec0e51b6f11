// The gradients of a run with devices, on their way. Sums the gradients of each node until all have arrived; on
// an accelerator by the host's rules for streams. Owned by the run. Any of its threads may arrive(); the sums
// of a ready node belong to the thread that takes the node. Leaves the choice of thread and time to the run.
#pragma once

#include "engine/base/mutex.h"
#include "engine/run/thread_context.h"

#include <torch/csrc/autograd/input_buffer.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace overdrive::engine {

class InputBuffers {
 public:
  using Sums = std::unique_ptr<torch::autograd::InputBuffer>;

  // `viewed`: the task whose view of the graph is to follow, or null.
  InputBuffers(RunMemory& memory, base::GraphTask* viewed);

  // The root's gradient, before anything else.
  void begin(const base::Edge& edge, at::Tensor&& gradient);

  // `gradient` was sent along `edge`, to the node `target`, by one that ran on the stream `producer`. True when
  // it was the last that the target waits for.
  bool arrive(uint32_t target, const base::Edge& edge, at::Tensor&& gradient,
              const std::optional<c10::Stream>& producer);

  // The gradients of a node that is about to run. take_sums() gives the sums of accelerators, which know the
  // streams to wait for, or null; take_gradients() then gives all inputs in order.
  Sums take_sums(uint32_t index) { return std::move(sums_[index]); }
  void take_gradients(uint32_t index, const Sums& sums, base::variable_list& inputs);

  // Whether no node is left that some but not all gradients have reached. When all threads are done.
  bool all_complete() const { return incomplete_.load() == 0; }

 private:
  void add(uint32_t target, const base::Edge& edge, at::Tensor&& gradient,
           const std::optional<c10::Stream>& producer);

  RunMemory& memory_;
  base::GraphTask* const viewed_;

  // Each element is guarded by the lock of its node until that is ready, and then its thread's.
  std::vector<Sums> sums_;
  static constexpr size_t kLocks = 64;
  std::array<base::Mutex, kLocks> locks_;  // of nodes that wait, by their index
  std::atomic<uint32_t> incomplete_{0};
};

}  // namespace overdrive::engine
