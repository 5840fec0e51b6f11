#include "engine/device_run.h"

#include "engine/counters.h"
#include "engine/grad_sum.h"
#include "engine/graph_views.h"
#include "engine/host_frame.h"
#include "engine/node_call.h"
#include "engine/overdrive_engine.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>

namespace overdrive::engine {

using namespace torch::autograd;

// One thread's part in the run.
class DeviceRun::Seat {
 public:
  Seat(ThreadContext& context, GraphTask* task, ThreadState& state, CurrentDevice device,
       host::NodeBits* current_node)
      : active(context, task, state),
        state_(state),
        device_(device),
        current_node_(current_node),
        between_nodes_(current_node == nullptr ? host::NodeBits() : *current_node) {}
  ~Seat() { count(Count::kNodes, nodes_run); }

  void begin_node(Node* node) {
    ++nodes_run;
    active.node = node;
    if (current_node_ != nullptr) *current_node_ = host::bits_of(*node);
  }
  // What a node or hook left behind must not reach the next.
  void end_node(bool user_code) {
    if (current_node_ != nullptr) *current_node_ = between_nodes_;
    state_.restore_after_node(user_code);
    device_.restore();
  }

  ActiveRun active;
  variable_list inputs;  // of the node that is running
  uint64_t nodes_run = 0;

 private:
  ThreadState& state_;
  const CurrentDevice device_;
  host::NodeBits* const current_node_;
  const host::NodeBits between_nodes_;
};

DeviceRun::DeviceRun(OverdriveEngine& engine, ThreadContext& context, RunMemory& memory, ThreadState& state,
                     const DevicePlan& devices, const WorkerLease& workers, const RunOptions& options)
    : engine_(engine),
      memory_(memory),
      devices_(devices),
      options_(options),
      grad_mode_(GradMode::is_enabled()),
      caller_(std::make_unique<Seat>(context, options.task, state, CurrentDevice(devices.type()),
                                     options.current_node)),
      home_(context.worker),
      sums_(memory.plan.nodes.size()),
      captured_(memory.plan.num_captured()) {
  if (!devices.hands_over()) return;
  TORCH_INTERNAL_ASSERT(options.task != nullptr && workers.workers().size() == devices.devices().size());
  caller_->active.has_company = true;
  queues_.push_back(home_ != nullptr ? home_->queue() : std::make_shared<TaskQueue>());
  for (const auto& worker : workers.workers()) queues_.push_back(worker->queue());
  visits_.resize(queues_.size());
  frames_.resize(queues_.size());
  if (!memory.plan.pruned()) return;
  // The host looks every node of a pruned run up.
  for (base::NodePtr& frame : frames_) {
    frame = HostFrame::make_frame(context);
    options.task->exec_info_[frame.get()].needed_ = true;
  }
}

DeviceRun::~DeviceRun() {
  if (devices_.hands_over() || !has_tasks()) return;
  caller_->active.context.abandon(this);
}

void DeviceRun::run(base::NodePtr root, const edge_list& root_edges, const variable_list& gradients) {
  memory_.slots.resize(memory_.plan.num_slots());
  if (memory_.plan.num_inputs(0) != 0) {
    at::Tensor gradient = gradients[0];
    const std::optional<c10::Stream> producer = stream_of_root_gradient(gradient);
    add(0, root_edges[0], std::move(gradient), producer);
  }
  make_ready(0, std::move(root));
  if (devices_.hands_over()) {
    run_with_workers();
  } else {
    run_alone();
  }
  streams_.restore();
  error_.rethrow_if_any();
  TORCH_CHECK(incomplete_ == 0, "could not compute gradients for some functions");
  streams_.wait_for_leaves();
}

void DeviceRun::run_alone() {
  ReadyHeap<ReadyTask>& heap = caller_->active.context.heap;
  while (has_tasks() && !error_.happened()) {
    const ReadyTask task = aside_.empty() ? heap.pop() : aside_.pop();
    if (task.run == nullptr) continue;  // of a nested backward that failed
    TORCH_INTERNAL_ASSERT(task.run == this);
    load_.fetch_sub(kOneTask);
    step(*caller_, task.node, task.keep);
  }
}

void DeviceRun::run_with_workers() {
  const Participants here(static_cast<int>(queues_.size()));
  TaskQueue& queue = *queues_[kMainLane];
  const auto any = [](const DeviceTask&) { return true; };
  const auto over = [this] { return is_over(); };
  while (std::optional<DeviceTask> task = queue.take(any, over, Patience::kLookAround)) {
    DeviceRun& owner = *task->run;
    if (&owner == this) {
      step(*caller_, task->node, task->keep);
      finish(*task);
    } else {
      owner.work(*home_, *std::move(task), Stay::kForOneTask);
    }
  }
}

void DeviceRun::work(Worker& worker, DeviceTask task, Stay stay) {
  load_.fetch_add(kOneInside);
  const std::shared_ptr<TaskQueue> callers_queue = queues_[kMainLane];
  const size_t lane = lane_of(worker);
  // Who comes a second time comes a third: it stays until the run is over, asleep if need be. Waking it for
  // the end costs less than going out and in.
  if (stay == Stay::kWhileThereIsMore && visits_[lane]++ != 0) {
    stay = Stay::kToTheEnd;
    staying_.fetch_add(1);
  }
  HostFrame::join(engine_, *options_.task, frames_[lane], worker.host_queue(),
                  [&] { serve(worker, std::move(task), stay); });
  if (stay == Stay::kToTheEnd) staying_.fetch_sub(1);
  if (load_.fetch_sub(kOneInside) == kOneInside) callers_queue->wake();
}

void DeviceRun::serve(Worker& worker, DeviceTask first, Stay stay) {
  ThreadContext& context = thread_context();
  ThreadState state(ThreadState::Watch::kUserCode, grad_mode_, &options_.task->thread_locals_);
  Seat seat(context, options_.task, state, CurrentDevice(worker.device()),
            options_.current_node == nullptr ? nullptr : HostFrame::current_node_place(context));
  seat.active.depth = caller_->active.depth;
  seat.active.has_company = true;
  std::optional<DeviceTask> task = std::move(first);
  while (task.has_value()) {
    step(seat, task->node, task->keep);
    finish(*task);
    if (stay == Stay::kForOneTask) break;
    const Patience patience = stay == Stay::kToTheEnd ? Patience::kLookAround : Patience::kNone;
    task = worker.queue()->take([this](const DeviceTask& next) { return next.run == this; },
                                [this] { return !has_tasks(); }, patience);
  }
}

// The node first: its destructor is the run's business. Who stays has counted itself before it looks at the
// tasks, so either it sees that there are none or it is seen here.
void DeviceRun::finish(DeviceTask& task) {
  task.keep = nullptr;
  if (load_.fetch_sub(kOneTask) >= 2 * kOneTask || staying_.load() == 0) return;
  for (size_t lane = kMainLane + 1; lane < queues_.size(); ++lane) queues_[lane]->wake();
}

size_t DeviceRun::lane_of(const Worker& worker) const {
  size_t lane = 0;
  while (queues_[lane] != worker.queue()) ++lane;
  return lane;
}

// Nothing comes out of here: after an error there is nothing to run, but every task is still taken.
void DeviceRun::step(Seat& seat, uint32_t index, const base::NodePtr& keep) {
  if (error_.happened()) return;
  try {
    seat.begin_node(keep.get());
    if (options_.observer != nullptr) [[unlikely]]
      options_.observer->begins(index);
    try {
      run_profiled(*keep, [&] { evaluate(seat, index); });
    } catch (std::exception& error) {
      seat.inputs.clear();  // the gradients of the node that failed go before anything is said of it
      report_exception(*options_.previous, keep, error);
      throw;
    }
    seat.end_node(options_.user_code);
  } catch (...) {
    error_.set(std::current_exception());
    seat.inputs.clear();
    try {
      seat.end_node(/*user_code=*/true);
    } catch (...) {  // the device cannot be set back; the error before it says why
    }
  }
}

void DeviceRun::evaluate(Seat& seat, uint32_t index) {
  Node& node = *memory_.plan.nodes[index].node;
  const std::unique_ptr<InputBuffer> sums = std::move(sums_[index]);
  const std::optional<c10::Stream> stream = stream_of(node, sums.get());
  const c10::OptionalStreamGuard guard(stream);
  if (sums != nullptr) wait_for_gradients(node, stream, *sums);
  take_inputs(index, sums.get(), seat.inputs);
  evaluate_on_stream(seat, index, stream);
}

void DeviceRun::evaluate_on_stream(Seat& seat, uint32_t index, const std::optional<c10::Stream>& stream) {
  Node& node = *memory_.plan.nodes[index].node;
  if (memory_.plan.pruned()) {
    const bool needed = visit_pruned(memory_.plan, index, seat.inputs, captured_);
    if (stream.has_value() && memory_.plan.first_capture(index) != NodeTable::kNone) streams_.add_leaf(*stream);
    if (!needed) return;
  }
  variable_list outputs = call_node(node, seat.inputs, options_.keep_graph);
  seat.inputs.clear();
  if (!options_.keep_graph) node.release_variables();
  if (outputs.empty()) {
    if (stream.has_value()) streams_.add_leaf(*stream);
    return;
  }
  if (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan()) [[unlikely]]
    check_for_nan(node, outputs);
  distribute(index, outputs, stream);
}

// By move, so that AccumulateGrad finds itself the only owner exactly when it does with stock.
void DeviceRun::take_inputs(uint32_t index, InputBuffer* sums, variable_list& inputs) {
  const uint32_t count = memory_.plan.num_inputs(index);
  at::Tensor* slot = memory_.slots.data() + memory_.plan.nodes[index].first_slot;
  inputs.clear();
  inputs.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const bool is_sum = sums != nullptr && sums->buffer[i].defined();
    inputs.push_back(std::move(is_sum ? sums->buffer[i] : slot[i]));
  }
}

void DeviceRun::distribute(uint32_t index, variable_list& outputs, const std::optional<c10::Stream>& stream) {
  const edge_list& edges = memory_.plan.nodes[index].node->next_edges();
  const size_t known = std::min(outputs.size(), edges.size());
  for (size_t i = 0; i < known; ++i) {
    const Edge& edge = edges[i];
    if (!edge.is_valid()) continue;
    const uint32_t target = target_of(index, i, edge);
    if (arrive(target, edge, std::move(outputs[i]), stream)) make_ready(target, edge.function);
  }
}

// Where an edge leads: as planned, or, when a hook changed the edge, wherever it leads now.
uint32_t DeviceRun::target_of(uint32_t index, size_t edge_index, const Edge& edge) const {
  const Plan& plan = memory_.plan;
  const Node* node = edge.function.get();
  if (edge_index < plan.num_edges(index)) {
    const uint32_t target = plan.targets[plan.nodes[index].first_edge + edge_index];
    if (target != NodeTable::kNone && plan.nodes[target].node == node) return target;
  }
  const uint32_t target = plan.find(node);
  TORCH_CHECK(target != NodeTable::kNone, "dependency not found for ", node->name());
  return target;
}

// True when it was the last that the target waited for. The sum is made under the lock, as in stock: two
// gradients of one node cannot be added at once, and each must be added by the thread that made it, whose
// current streams the host's rules look at.
bool DeviceRun::arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                       const std::optional<c10::Stream>& producer) {
  base::MutexLock lock(locks_[target % kLocks]);
  PlannedNode& planned = memory_.plan.nodes[target];
  TORCH_CHECK(planned.waiting != 0, "dependency not found for ", planned.node->name());
  const bool last = --planned.waiting == 0;
  if (options_.graph_views && !devices_.hands_over()) note_arrival(*options_.task, planned.node);
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

void DeviceRun::add(uint32_t target, const Edge& edge, at::Tensor&& gradient,
                    const std::optional<c10::Stream>& producer) {
  if (!gradient.defined()) return;
  Node* const consumer = edge.function.get();
  at::Tensor& slot = memory_.slots[memory_.plan.nodes[target].first_slot + edge.input_nr];
  std::unique_ptr<InputBuffer>& sums = sums_[target];
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

void DeviceRun::make_ready(uint32_t index, base::NodePtr node) {
  load_.fetch_add(kOneTask);
  const TaskRank rank{caller_->active.depth, node->sequence_nr()};
  const Lane lane = devices_.lane_of(index);
  if (devices_.hands_over()) {
    queues_[lane]->push({rank, index, this, std::move(node)});
  } else if (lane == kMainLane) {
    caller_->active.context.heap.push({rank, index, this, std::move(node)});
  } else {
    aside_.push({rank, index, this, std::move(node)});
  }
}

}  // namespace overdrive::engine
