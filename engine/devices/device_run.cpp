#include "engine/devices/device_run.h"

#include "engine/base/no_destructor.h"
#include "engine/host/host_frame.h"

#include <c10/core/StreamGuard.h>

#include <functional>
#include <new>
#include <utility>

namespace overdrive::engine {

using namespace torch::autograd;

DeviceRun::DeviceRun(HostEngine& engine, ThreadContext& context, RunMemory& memory, ThreadState& state,
                     const DevicePlan& devices, const WorkerLease& workers, const RunOptions& options)
    : engine_(engine),
      memory_(memory),
      devices_(devices),
      options_(options),
      grad_mode_(GradMode::is_enabled()),
      captured_(memory.plan.num_captured()),
      step_(step_of(memory.plan, captured_, options)),
      owner_(context.worker),
      caller_(kMainQueue, context, state, options_, options.current_node, CurrentDevice(devices.type()),
              memory.lists),
      // Nodes that are run by several threads are shown to nobody.
      input_buffers_(memory, options.task_tables && !devices.hands_over() ? options.task : nullptr) {
  if (!devices.hands_over()) return;
  TORCH_INTERNAL_ASSERT(options.task != nullptr && workers.workers().size() == devices.devices().size());
  caller_.thread.active.is_multithreaded = true;
  queues_.push_back(owner_ != nullptr ? owner_->queue() : std::make_shared<TaskQueue>());
  for (const auto& worker : workers.workers()) queues_.push_back(worker->queue());
  visits_.resize(queues_.size());
  frames_.resize(queues_.size());
  if (!memory.plan.pruned()) return;
  // The host looks every node of a pruned run up.
  for (base::NodePtr& frame : frames_) {
    frame = HostFrame::make_frame(context.frames);
    options.task->exec_info_[frame.get()].needed_ = true;
  }
}

DeviceRun::~DeviceRun() {
  if (devices_.hands_over() || !has_tasks()) return;
  caller_.thread.active.context.abandon(*this);
}

void DeviceRun::run(base::NodePtr root, const edge_list& root_edges, const variable_list& gradients) {
  memory_.slots.resize(memory_.plan.num_slots());
  if (memory_.plan.num_inputs(0) != 0) {
    at::Tensor gradient = gradients[0];
    input_buffers_.begin(root_edges[0], std::move(gradient));
  }
  const TaskRank rank{caller_.thread.active.depth, root->sequence_nr()};
  put_into_queue(devices_.queue_of(0), {rank, 0, this, std::move(root)});
  if (devices_.hands_over()) {
    run_with_workers();
  } else {
    run_alone();
  }
  streams_.restore();
  error_.rethrow_if_any();
  TORCH_CHECK(input_buffers_.all_complete(), "could not compute gradients for some functions");
  streams_.wait_for_leaves();
}

void DeviceRun::run_alone() {
  ReadyHeap<ReadyTask>& heap = caller_.thread.active.context.heap;
  while (has_tasks() && !error_.happened()) {
    const ReadyTask task = secondary_heap_.empty() ? heap.pop() : secondary_heap_.pop();
    if (task.run == nullptr) continue;  // of a nested backward that failed
    TORCH_INTERNAL_ASSERT(task.run == this);
    load_.fetch_sub(kOneTask);
    step(caller_, task);
  }
}

void DeviceRun::run_with_workers() {
  const Participants here(static_cast<int>(queues_.size()));
  TaskQueue& queue = *queues_[kMainQueue];
  const auto any = [](const ReadyTask&) { return true; };
  const auto over = [this] { return is_over(); };
  std::optional<ReadyTask> task = queue.take(any, over, WaitPolicy::kLookAround);
  while (task.has_value()) {
    if (task->run == this) {
      step(caller_, *task);
      task = task_after(caller_, *task, any, over, WaitPolicy::kLookAround);
    } else {
      SharedRun& other_run = shared_run_of(*task);
      other_run.work(*owner_, *std::move(task), WorkerRetention::kForOneTask);
      task = queue.take(any, over, WaitPolicy::kLookAround);
    }
  }
}

void DeviceRun::work(Worker& worker, ReadyTask task, WorkerRetention retention) {
  load_.fetch_add(kOneInside);  // invariant 2: `task` is not done yet
  const std::shared_ptr<TaskQueue> callers_queue = queues_[kMainQueue];
  const QueueIndex queue_index = queue_of(worker);
  // A worker that comes a second time stays until the run is over, asleep if need be, because it is likely to
  // come a third time. Waking it at the end costs less than leaving and entering again.
  if (retention == WorkerRetention::kWhileThereIsMore && visits_[queue_index]++ != 0) {
    retention = WorkerRetention::kUntilTheRunEnds;
    retained_.fetch_add(1);  // invariant 4: before serve() reads the task count
  }
  const auto inside = [&] { serve(worker, queue_index, task, retention); };
  try {
    HostFrame::join(engine_, thread_context().frames, *options_.task, frames_[queue_index], worker.host_queue(),
                    std::ref(inside));
  } catch (...) {  // no memory to enter the task with
    error_.set(std::current_exception());
  }
  if (task.run != nullptr) finish(task);
  if (retention == WorkerRetention::kUntilTheRunEnds) retained_.fetch_sub(1);
  // Invariant 3: from here on the run may be gone.
  if (load_.fetch_sub(kOneInside) == kOneInside) callers_queue->wake();
}

// `first` loses its run when it was taken. An error leaves `first` to the caller.
void DeviceRun::serve(Worker& worker, QueueIndex queue_index, ReadyTask& first, WorkerRetention retention) try {
  ThreadContext& context = thread_context();
  ThreadState state(ThreadState::Code::kUser, grad_mode_, &options_.task->thread_locals_);
  GradientLists lists;
  host::NodeBits* const current_node =
      options_.current_node == nullptr ? nullptr : HostFrame::current_node_place(engine_, context.frames);
  DeviceRunState run_state(queue_index, context, state, options_, current_node, CurrentDevice(worker.device()),
                           lists);
  run_state.thread.active.depth = caller_.thread.active.depth;
  run_state.thread.active.is_multithreaded = true;
  const auto ours = [this](const ReadyTask& next) { return next.run == this; };
  const auto over = [this] { return !has_tasks(); };
  const WaitPolicy policy =
      retention == WorkerRetention::kUntilTheRunEnds ? WaitPolicy::kLookAround : WaitPolicy::kNone;
  std::optional<ReadyTask> task = std::move(first);
  first.run = nullptr;
  while (task.has_value()) {
    step(run_state, *task);
    if (retention == WorkerRetention::kForOneTask) {
      if (run_state.next.has_value()) put_into_queue(queue_index, run_state.take_next());
      finish(*task);
      return;
    }
    task = task_after(run_state, *task, ours, over, policy);
  }
} catch (...) {
  error_.set(std::current_exception());
}

// A task that the node has made ready for its own thread takes the node's place in the count of tasks, and runs
// at once where nothing else waits. The finished node is released first, because its destructor belongs to the
// run.
template <typename Wanted, typename Over>
std::optional<ReadyTask> DeviceRun::task_after(DeviceRunState& run_state, ReadyTask& done, Wanted&& wanted,
                                               Over&& over, WaitPolicy policy) {
  TaskQueue& queue = *queues_[run_state.queue_index];
  if (!run_state.next.has_value()) {
    finish(done);
    return queue.take(wanted, over, policy);
  }
  done.keep = nullptr;
  try {
    return queue.exchange(run_state.take_next(), wanted);
  } catch (const std::bad_alloc&) {  // the task that is lost counts as done
    error_.set(std::current_exception());
  }
  finish(done);
  return queue.take(wanted, over, policy);
}

// Invariant 4: this function reads `retained_` after it has taken the last task out of the count.
void DeviceRun::finish(ReadyTask& task) {
  task.keep = nullptr;
  if (load_.fetch_sub(kOneTask) >= 2 * kOneTask || retained_.load() == 0) return;
  for (size_t queue_index = kMainQueue + 1; queue_index < queues_.size(); ++queue_index)
    queues_[queue_index]->wake();
}

// In the order in which they would have come into the queue: of several that one node makes ready for its
// thread all go there.
void DeviceRun::make_ready(DeviceRunState& run_state, uint32_t index, base::NodePtr node) {
  const QueueIndex queue_index = devices_.queue_of(index);
  ReadyTask task{{caller_.thread.active.depth, node->sequence_nr()}, index, this, std::move(node)};
  if (!devices_.hands_over() || queue_index != run_state.queue_index)
    return put_into_queue(queue_index, std::move(task));
  if (!run_state.next.has_value() && !run_state.made_several) {
    run_state.next = std::move(task);
    return;
  }
  run_state.made_several = true;
  if (run_state.next.has_value()) put_into_queue(queue_index, run_state.take_next());
  put_into_queue(queue_index, std::move(task));
}

void DeviceRun::put_into_queue(QueueIndex queue_index, ReadyTask task) {
  load_.fetch_add(kOneTask);  // invariant 2: before another thread can take the task
  try {
    if (devices_.hands_over()) {
      queues_[queue_index]->push(std::move(task));
      return;
    }
    ReadyHeap<ReadyTask>& heap =
        queue_index == kMainQueue ? caller_.thread.active.context.heap : secondary_heap_;
    heap.push({task.rank, task.node, this, std::move(task.keep)});
  } catch (...) {  // the node that made it ready is not done yet, so nobody takes this for the end
    load_.fetch_sub(kOneTask);
    throw;
  }
}

QueueIndex DeviceRun::queue_of(const Worker& worker) const {
  QueueIndex queue_index = 0;
  while (queues_[queue_index] != worker.queue()) ++queue_index;
  return queue_index;
}

// Where the gradients of one node go.
struct DeviceRun::ResultSink {
  void arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient) {
    if (run.input_buffers_.arrive(target, edge, std::move(gradient), stream)) {
      run.make_ready(run_state, target, edge.function);
    }
  }
  void called(bool) {}
  void ended() {
    if (stream.has_value()) run.streams_.add_leaf(*stream);
  }
  DeviceRun& run;
  DeviceRunState& run_state;
  const std::optional<c10::Stream>& stream;
};

// No error comes out of here: after one there is nothing to run, but every task is still taken.
void DeviceRun::step(DeviceRunState& run_state, const ReadyTask& task) {
  if (error_.happened()) return;
  try {
    run_state.begin_node();
    run_state.thread.run(task, [&] { evaluate(run_state, task.node); });
    run_state.device.restore();
  } catch (...) {
    error_.set(std::current_exception());
    try {
      run_state.device.restore();
    } catch (...) {  // the device cannot be set back; the error before it says why
    }
    // With workers in the run nobody may leave; the system then ends the process.
    if (base::thread_is_ending() && !devices_.hands_over()) throw;
  }
}

void DeviceRun::evaluate(DeviceRunState& run_state, uint32_t index) {
  Node& node = *memory_.plan.nodes[index].node;
  const InputBuffers::Sums sums = input_buffers_.take_sums(index);
  const std::optional<c10::Stream> stream = stream_of(node, sums.get());
  const c10::OptionalStreamGuard guard(stream);
  if (sums != nullptr) wait_for_gradients(node, stream, *sums);
  input_buffers_.take_gradients(index, sums, run_state.thread.lists.inputs);
  run_node(step_, index, run_state.thread.lists, ResultSink{*this, run_state, stream});
}

}  // namespace overdrive::engine
