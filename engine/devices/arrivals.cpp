#include "engine/devices/arrivals.h"

#include "engine/node/grad_sum.h"
#include "engine/plan/graph_views.h"
#include "engine/node/node_call.h"
#include "engine/devices/stream_sync.h"

namespace overdrive::engine {

using namespace torch::autograd;

Arrivals::Arrivals(RunMemory& memory, GraphTask* viewed)
    : memory_(memory), viewed_(viewed), sums_(memory.plan.nodes.size()) {}

void Arrivals::begin(const Edge& edge, at::Tensor&& gradient) {
  const std::optional<c10::Stream> producer = stream_of_root_gradient(gradient);
  add(0, edge, std::move(gradient), producer);
}

// The sum is made under the lock, as in stock: two gradients of one node cannot be added at once, and each must
// be added by the thread that made it, whose current streams the host's rules look at.
bool Arrivals::arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                      const std::optional<c10::Stream>& producer) {
  base::MutexLock lock(locks_[target % kLocks]);
  PlannedNode& planned = memory_.plan.nodes[target];
  TORCH_CHECK(planned.waiting != 0, "dependency not found for ", planned.node->name());
  planned.waiting -= 1;
  const bool last = planned.waiting == 0;
  if (viewed_ != nullptr) note_arrival(*viewed_, planned.node);
  if (!planned.may_run) return false;
  add(target, edge, std::move(gradient), producer);
  if (last) {
    if (planned.reached) incomplete_.fetch_sub(1, std::memory_order_relaxed);
  } else if (!planned.reached) {
    planned.reached = true;
    incomplete_.fetch_add(1, std::memory_order_relaxed);
  }
  return last;
}

void Arrivals::add(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                   const std::optional<c10::Stream>& producer) {
  if (!gradient.defined()) return;
  Node* const consumer = edge.function.get();
  at::Tensor& slot = memory_.slots[memory_.plan.nodes[target].first_slot + edge.input_nr];
  Sums& sums = sums_[target];
  // A tensor subclass may bring gradients of several devices to one input; they are one sum.
  const bool is_begun = sums != nullptr && sums->buffer[edge.input_nr].defined();
  if (!is_on_accelerator(gradient) && !is_begun) {
    add_gradient(slot, std::move(gradient), consumer);
    return;
  }
  if (sums == nullptr) sums = std::make_unique<InputBuffer>(memory_.plan.num_inputs(target));
  if (slot.defined()) sums->buffer[edge.input_nr] = std::move(slot);
  sums->add(edge.input_nr, std::move(gradient), producer, consumer->stream(), consumer);
}

// By move, so that AccumulateGrad finds itself the only owner exactly when it does with stock.
void Arrivals::take_inputs(uint32_t index, const Sums& sums, variable_list& inputs) {
  const uint32_t count = memory_.plan.num_inputs(index);
  at::Tensor* slot = memory_.slots.data() + memory_.plan.nodes[index].first_slot;
  inputs.clear();
  inputs.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const bool is_sum = sums != nullptr && sums->buffer[i].defined();
    inputs.push_back(std::move(is_sum ? sums->buffer[i] : slot[i]));
  }
  add_late_inputs(*memory_.plan.nodes[index].node, inputs);
}

}  // namespace overdrive::engine
