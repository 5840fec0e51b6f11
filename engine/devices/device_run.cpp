#include "engine/devices/device_run.h"

#include "engine/base/thread_end.h"
#include "engine/host/host_frame.h"
#include "engine/node/node_call.h"
#include "engine/overdrive_engine.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace overdrive::engine {

using namespace torch::autograd;

DeviceRun::DeviceRun(OverdriveEngine& engine, ThreadContext& context, RunMemory& memory, ThreadState& state,
                     const DevicePlan& devices, const WorkerLease& workers, const RunOptions& options)
    : engine_(engine),
      memory_(memory),
      devices_(devices),
      options_(options),
      grad_mode_(GradMode::is_enabled()),
      home_(context.worker),
      caller_(kMainLane, context, options.task, state, CurrentDevice(devices.type()), options.current_node),
      captured_(memory.plan.num_captured()),
      // Nodes that are run by several threads are shown to nobody.
      arrivals_(memory, options.graph_views && !devices.hands_over() ? options.task : nullptr) {
  if (!devices.hands_over()) return;
  TORCH_INTERNAL_ASSERT(options.task != nullptr && workers.workers().size() == devices.devices().size());
  caller_.active.has_company = true;
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
  caller_.active.context.abandon(this);
}

void DeviceRun::run(base::NodePtr root, const edge_list& root_edges, const variable_list& gradients) {
  memory_.slots.resize(memory_.plan.num_slots());
  if (memory_.plan.num_inputs(0) != 0) {
    at::Tensor gradient = gradients[0];
    arrivals_.begin(root_edges[0], std::move(gradient));
  }
  const TaskRank rank{caller_.active.depth, root->sequence_nr()};
  put_into_queue(devices_.lane_of(0), {rank, 0, this, std::move(root)});
  if (devices_.hands_over()) {
    run_with_workers();
  } else {
    run_alone();
  }
  streams_.restore();
  error_.rethrow_if_any();
  TORCH_CHECK(arrivals_.all_complete(), "could not compute gradients for some functions");
  streams_.wait_for_leaves();
}

void DeviceRun::run_alone() {
  ReadyHeap<ReadyTask>& heap = caller_.active.context.heap;
  while (has_tasks() && !error_.happened()) {
    const ReadyTask task = aside_.empty() ? heap.pop() : aside_.pop();
    if (task.run == nullptr) continue;  // of a nested backward that failed
    TORCH_INTERNAL_ASSERT(task.run == this);
    load_.fetch_sub(kOneTask);
    step(caller_, task.node, task.keep);
  }
}

void DeviceRun::run_with_workers() {
  const Participants here(static_cast<int>(queues_.size()));
  TaskQueue& queue = *queues_[kMainLane];
  const auto any = [](const DeviceTask&) { return true; };
  const auto over = [this] { return is_over(); };
  std::optional<DeviceTask> task = queue.take(any, over, Patience::kLookAround);
  while (task.has_value()) {
    DeviceRun& owner = *task->run;
    if (&owner == this) {
      step(caller_, task->node, task->keep);
      task = task_after(caller_, *task, any, over, Patience::kLookAround);
    } else {
      owner.work(*home_, *std::move(task), Stay::kForOneTask);
      task = queue.take(any, over, Patience::kLookAround);
    }
  }
}

void DeviceRun::work(Worker& worker, DeviceTask task, Stay stay) {
  load_.fetch_add(kOneInside);
  const std::shared_ptr<TaskQueue> callers_queue = queues_[kMainLane];
  const Lane lane = lane_of(worker);
  // Who comes a second time comes a third: it stays until the run is over, asleep if need be. Waking it for
  // the end costs less than going out and in.
  if (stay == Stay::kWhileThereIsMore && visits_[lane]++ != 0) {
    stay = Stay::kToTheEnd;
    staying_.fetch_add(1);
  }
  const auto inside = [&] { serve(worker, lane, std::move(task), stay); };
  HostFrame::join(engine_, *options_.task, frames_[lane], worker.host_queue(), std::ref(inside));
  if (stay == Stay::kToTheEnd) staying_.fetch_sub(1);
  if (load_.fetch_sub(kOneInside) == kOneInside) callers_queue->wake();
}

void DeviceRun::serve(Worker& worker, Lane lane, DeviceTask first, Stay stay) {
  ThreadContext& context = thread_context();
  ThreadState state(ThreadState::Watch::kUserCode, grad_mode_, &options_.task->thread_locals_);
  Seat seat(lane, context, options_.task, state, CurrentDevice(worker.device()),
            options_.current_node == nullptr ? nullptr : HostFrame::current_node_place(context));
  seat.active.depth = caller_.active.depth;
  seat.active.has_company = true;
  const auto ours = [this](const DeviceTask& next) { return next.run == this; };
  const auto over = [this] { return !has_tasks(); };
  const Patience patience = stay == Stay::kToTheEnd ? Patience::kLookAround : Patience::kNone;
  std::optional<DeviceTask> task = std::move(first);
  while (task.has_value()) {
    step(seat, task->node, task->keep);
    if (stay == Stay::kForOneTask) {
      if (seat.next.has_value()) put_into_queue(lane, seat.take_next());
      finish(*task);
      return;
    }
    task = task_after(seat, *task, ours, over, patience);
  }
}

// What a node has made ready for its own thread takes its place in the count of tasks, and is run at once where
// nothing else waits. The node that is done goes first: its destructor is the run's business.
template <typename Wanted, typename Over>
std::optional<DeviceTask> DeviceRun::task_after(Seat& seat, DeviceTask& done, Wanted&& wanted, Over&& over,
                                                Patience patience) {
  TaskQueue& queue = *queues_[seat.lane];
  if (!seat.next.has_value()) {
    finish(done);
    return queue.take(wanted, over, patience);
  }
  done.keep = nullptr;
  return queue.exchange(seat.take_next(), wanted);
}

// Who stays has counted itself before it looks at the tasks, so either it sees that there are none or it is
// seen here.
void DeviceRun::finish(DeviceTask& task) {
  task.keep = nullptr;
  if (load_.fetch_sub(kOneTask) >= 2 * kOneTask || staying_.load() == 0) return;
  for (size_t lane = kMainLane + 1; lane < queues_.size(); ++lane) queues_[lane]->wake();
}

// In the order in which they would have come into the queue: of several that one node makes ready for its
// thread all go there.
void DeviceRun::make_ready(Seat& seat, uint32_t index, base::NodePtr node) {
  const Lane lane = devices_.lane_of(index);
  DeviceTask task{{caller_.active.depth, node->sequence_nr()}, index, this, std::move(node)};
  if (!devices_.hands_over() || lane != seat.lane) return put_into_queue(lane, std::move(task));
  if (!seat.next.has_value() && !seat.made_several) {
    seat.next = std::move(task);
    return;
  }
  seat.made_several = true;
  if (seat.next.has_value()) put_into_queue(lane, seat.take_next());
  put_into_queue(lane, std::move(task));
}

void DeviceRun::put_into_queue(Lane lane, DeviceTask task) {
  load_.fetch_add(kOneTask);
  if (devices_.hands_over()) {
    queues_[lane]->push(std::move(task));
    return;
  }
  ReadyHeap<ReadyTask>& heap = lane == kMainLane ? caller_.active.context.heap : aside_;
  heap.push({task.rank, task.node, this, std::move(task.keep)});
}

Lane DeviceRun::lane_of(const Worker& worker) const {
  Lane lane = 0;
  while (queues_[lane] != worker.queue()) ++lane;
  return lane;
}

// No error comes out of here: after one there is nothing to run, but every task is still taken.
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
    // With workers in the run nobody may leave; the system then ends the process.
    if (base::thread_is_ending() && !devices_.hands_over()) throw;
  }
}

void DeviceRun::evaluate(Seat& seat, uint32_t index) {
  Node& node = *memory_.plan.nodes[index].node;
  const Arrivals::Sums sums = arrivals_.take_sums(index);
  const std::optional<c10::Stream> stream = stream_of(node, sums.get());
  const c10::OptionalStreamGuard guard(stream);
  if (sums != nullptr) wait_for_gradients(node, stream, *sums);
  arrivals_.take_inputs(index, sums, seat.inputs);
  evaluate_on_stream(seat, index, stream);
}

void DeviceRun::evaluate_on_stream(Seat& seat, uint32_t index, const std::optional<c10::Stream>& stream) {
  Node& node = *memory_.plan.nodes[index].node;
  if (memory_.plan.pruned()) {
    const bool needed = visit_pruned(memory_.plan, index, seat.inputs, captured_);
    if (stream.has_value() && memory_.plan.first_capture(index) != NodeTable::kNone) streams_.add_leaf(*stream);
    if (!needed) return;
  }
  variable_list outputs;
  call_node(node, seat.inputs, outputs, {.keep_graph = options_.keep_graph});
  seat.inputs.clear();
  if (!options_.keep_graph) node.release_variables();
  if (outputs.empty()) {
    if (stream.has_value()) streams_.add_leaf(*stream);
    return;
  }
  if (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan()) [[unlikely]]
    check_for_nan(node, outputs);
  distribute(seat, index, outputs, stream);
}

void DeviceRun::distribute(Seat& seat, uint32_t index, variable_list& outputs,
                           const std::optional<c10::Stream>& stream) {
  const edge_list& edges = memory_.plan.nodes[index].node->next_edges();
  const size_t known = std::min(outputs.size(), edges.size());
  for (size_t i = 0; i < known; ++i) {
    const Edge& edge = edges[i];
    if (!edge.is_valid()) continue;
    const uint32_t target = target_of(index, i, edge);
    if (arrivals_.arrive(target, edge, std::move(outputs[i]), stream)) make_ready(seat, target, edge.function);
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

}  // namespace overdrive::engine
