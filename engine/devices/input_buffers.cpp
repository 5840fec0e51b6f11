#include "engine/devices/input_buffers.h"

#include "engine/devices/stream_sync.h"
#include "engine/node/grad_sum.h"
#include "engine/node/step.h"
#include "engine/plan/task_tables.h"

namespace overdrive::engine {

using namespace torch::autograd;

InputBuffers::InputBuffers(RunMemory& memory, GraphTask* viewed)
    : memory_(memory), viewed_(viewed), sums_(memory.plan.nodes.size()) {}

void InputBuffers::begin(const Edge& edge, at::Tensor&& gradient) {
  const std::optional<c10::Stream> producer = stream_of_root_gradient(gradient);
  add(0, edge, std::move(gradient), producer);
}

// The sum is made under the lock, as in stock: two gradients of one node cannot be added at once, and each must
// be added by the thread that made it, whose current streams the host's rules look at.
bool InputBuffers::arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                          const std::optional<c10::Stream>& producer) {
  base::MutexLock lock(locks_[target % kLocks]);
  PlannedNode& planned = memory_.plan.nodes[target];
  check_still_waits(planned);
  if (viewed_ != nullptr) note_arrival(*viewed_, planned.node);
  const bool last = count_arrival(planned, incomplete_);
  if (planned.may_run) add(target, edge, std::move(gradient), producer);
  return last;
}

void InputBuffers::add(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                       const std::optional<c10::Stream>& producer) {
  if (!gradient.defined()) return;
  Node* const consumer = edge.function.get();
  at::Tensor& slot = memory_.slots[slot_of(memory_.plan, target, edge)];
  Sums& sums = sums_[target];
  // A tensor subclass may bring gradients of several devices to one input; they are one sum.
  const bool is_begun = sums != nullptr && sums->buffer[edge.input_nr].defined();
  if (!is_on_accelerator(gradient) && !is_begun) {
    add_gradient(slot, std::move(gradient), consumer);
    return;
  }
  if (sums == nullptr) sums = std::make_unique<InputBuffer>(memory_.plan.num_inputs(target));
  if (slot.defined()) sums->buffer[edge.input_nr] = std::move(slot);
  const std::optional<c10::Stream> stream = consumer->stream();
  sums->add(edge.input_nr, std::move(gradient), producer, stream, consumer);
  name_leaf_on_another_stream(*consumer, producer, stream);
}

void InputBuffers::take_gradients(uint32_t index, const Sums& sums, variable_list& inputs) {
  const Plan& plan = memory_.plan;
  at::Tensor* const slots = memory_.slots.data() + plan.nodes[index].first_slot;
  for (uint32_t i = 0; sums != nullptr && i < plan.num_inputs(index); ++i) {
    if (sums->buffer[i].defined()) slots[i] = std::move(sums->buffer[i]);
  }
  take_inputs(plan, index, slots, inputs);
}

}  // namespace overdrive::engine
