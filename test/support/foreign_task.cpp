#include "test/support/foreign_task.h"

#include <limits>

// Declared in LibTorch's public headers, defined there without being exported: what this
// file needs of them is defined here, and stays inside the test program.
namespace torch::autograd {

void utils::DelayWarningHandler::process(const c10::Warning& warning) {
  std::lock_guard lock(mutex_);
  warnings_.push_back(warning);
}

void utils::DelayWarningHandler::replay_warnings() {
  for (const auto& warning : warnings_) c10::warn(warning);
}

GraphTask::GraphTask(bool keep_graph, bool grad_mode, int reentrant_depth,
                     std::shared_ptr<ReadyQueue> cpu_ready_queue, c10::SmallVector<Node*, 4> graph_roots,
                     bool exit_on_error)
    : keep_graph_(keep_graph),
      graph_roots_(std::move(graph_roots)),
      reentrant_depth_(reentrant_depth),
      exit_on_error_(exit_on_error),
      cpu_ready_queue_(std::move(cpu_ready_queue)),
      future_result_(c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))),
      id_(1'000'000) {
  thread_locals_.set_grad_mode(grad_mode);
}

int NodeTask::getReentrantDepth() const {
  const auto task = base_.lock();
  return task ? task->reentrant_depth_ : std::numeric_limits<int>::max();
}

void ReadyQueue::push(NodeTask item, bool increment) {
  {
    std::lock_guard lock(mutex_);
    if (increment) ++item.base_.lock()->outstanding_tasks_;
    heap_.push(std::move(item));
  }
  not_empty_.notify_one();
}

NodeTask ReadyQueue::pop() {
  std::unique_lock lock(mutex_);
  not_empty_.wait(lock, [this] { return !heap_.empty(); });
  auto task = std::move(const_cast<NodeTask&>(heap_.top()));  // the heap forgets it in the next line
  heap_.pop();
  return task;
}

bool ReadyQueue::empty() const {
  std::lock_guard lock(mutex_);
  return heap_.empty();
}

}  // namespace torch::autograd

namespace overdrive::test {

using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::NodeTask;
using torch::autograd::ReadyQueue;

namespace {

// An engine that runs nothing: the task that the base class makes for it shows the queue on which this
// thread waits, for which the host has no getter.
class QueueFinder final : public Engine {
 public:
  ~QueueFinder() override { stop(); }
  std::shared_ptr<ReadyQueue> find() {
    const auto node = make_node("queue finder", {});
    execute({edge(node)}, {one()}, false, false, true, {});
    return queue_;
  }

 private:
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<GraphTask>& task,
                                                                 base::NodePtr, InputBuffer&&) override {
    queue_ = task->cpu_ready_queue_;
    task->future_result_->markCompleted(variable_list{});
    return task->future_result_;
  }
  std::shared_ptr<ReadyQueue> queue_;
};

struct CaptureHook final : GraphTask::ExecInfo::Capture::GradCaptureHook {
  explicit CaptureHook(std::function<at::Tensor(const at::Tensor&)> function)
      : function_(std::move(function)) {}
  at::Tensor operator()(const at::Tensor& grad) override { return function_(grad); }
  std::function<at::Tensor(const at::Tensor&)> function_;
};

void count_dependencies(Node* root, GraphTask& task) {
  std::vector<Node*> to_visit{root};
  while (!to_visit.empty()) {
    auto* node = to_visit.back();
    to_visit.pop_back();
    for (const auto& next : node->next_edges()) {
      if (!next.function) continue;
      ++task.dependencies_[next.function.get()];
      if (task.nodes_in_graph_.insert(next.function.get()).second) to_visit.push_back(next.function.get());
    }
  }
}

InputBuffer buffer_with(const at::Tensor& gradient, Node* node) {
  InputBuffer buffer(node->num_inputs());
  buffer.add(0, at::Tensor(gradient), std::nullopt, std::nullopt, node);
  return buffer;
}

}  // namespace

ForeignTask::ForeignTask(NodePtr root, ForeignTaskOptions options)
    : root_(std::move(root)),
      task_(
          std::make_shared<GraphTask>(options.keep_graph, options.grad_mode, 0,
                                      options.own_queue ? std::make_shared<ReadyQueue>() : QueueFinder().find(),
                                      c10::SmallVector<Node*, 4>{root_.get()}, options.exit_on_error)) {
  count_dependencies(root_.get(), *task_);
}

void ForeignTask::capture(const NodePtr& node, int input, int output,
                          std::function<at::Tensor(const at::Tensor&)> hook) {
  task_->exec_info_[root_.get()].needed_ = true;
  for (auto* each : task_->nodes_in_graph_) task_->exec_info_[each].needed_ = true;
  auto& captures = task_->exec_info_[node.get()].captures_;
  if (!captures) captures = std::make_unique<std::vector<GraphTask::ExecInfo::Capture>>();
  captures->emplace_back(input, output);
  if (hook) {
    captures->back().DO_NOT_USE_DEPRECATED_register_capture_hook(
        std::make_unique<CaptureHook>(std::move(hook)));
  }
  task_->captured_vars_.resize(std::max(task_->captured_vars_.size(), static_cast<size_t>(output) + 1));
}

c10::intrusive_ptr<at::ivalue::Future> ForeignTask::run(const at::Tensor& gradient) {
  return Engine::get_default_engine().execute_with_graph_task(task_, root_, buffer_with(gradient, root_.get()));
}

void ForeignTask::drive(const at::Tensor& gradient) {
  auto& engine = Engine::get_default_engine();
  engine.initialize_device_threads_pool();
  task_->owner_ = torch::autograd::CPU_DEVICE;
  const auto& queue = task_->cpu_ready_queue_;
  queue->push(NodeTask(task_, root_, buffer_with(gradient, root_.get())));
  while (!queue->empty()) {
    auto item = queue->pop();
    engine.evaluate_function(task_, item.fn_.get(), item.inputs_, queue);
    --task_->outstanding_tasks_;
  }
}

}  // namespace overdrive::test
