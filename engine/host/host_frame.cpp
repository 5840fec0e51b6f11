#include "engine/host/host_frame.h"

#include "engine/base/no_destructor.h"
#include "engine/host/gradient_tensors.h"
#include "engine/host/graph_task.h"

#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include <exception>
#include <limits>
#include <new>

// Members of host classes that the host's headers declare and its library does not export. The graph tasks of
// report_exception() and the queues of workers need them. Hidden visibility keeps them inside this library.
namespace torch::autograd {

namespace utils {
void DelayWarningHandler::process(const c10::Warning& warning) {
  std::lock_guard<std::mutex> lock(mutex_);
  warnings_.push_back(warning);
}
}  // namespace utils

int NodeTask::getReentrantDepth() const {
  const std::shared_ptr<GraphTask> task = base_.lock();
  return task ? task->reentrant_depth_ : std::numeric_limits<int>::max();
}

// Both functions run on the queue's thread, before and inside its loop.
void ReadyQueue::push(NodeTask item, bool increment_outstanding_tasks) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (increment_outstanding_tasks) ++item.base_.lock()->outstanding_tasks_;
    heap_.push(std::move(item));
  }
  not_empty_.notify_one();
}

void ReadyQueue::pushShutdownTask() {
  push(NodeTask({}, nullptr, InputBuffer(0), /*isShutdownTask=*/true), false);
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
      id_(std::numeric_limits<int>::max()) {
  thread_locals_.set_grad_mode(grad_mode);
}

}  // namespace torch::autograd

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// Carries an error that is not a std::exception through the host's loop, which catches only std::exception.
struct ForeignError : std::exception {
  const char* what() const noexcept override { return "an error that is not a std::exception"; }
};

class FrameNode final : public Node {
 public:
  // Not a sequence number of the thread, because the host's counter must not move.
  FrameNode() : Node(/*sequence_nr=*/uint64_t{0}) {}

  std::string name() const override { return "overdrive::backward"; }

  // `queue`: of a thread that joins, or null.
  void arm(const std::function<void()>& body, const FrameRequest* request, ReadyQueue* queue = nullptr) {
    body_ = &body;
    request_ = request;
    queue_ = queue;
    error_ = nullptr;
    begun_ = false;
    names_ = {};
  }
  void disarm() {
    body_ = nullptr;
    request_ = nullptr;
    queue_ = nullptr;
    error_ = nullptr;
    begun_ = false;
  }
  const FrameRequest& request() const { return *request_; }
  const std::exception_ptr& error() const { return error_; }
  bool begun() const { return begun_; }
  void set_begun(bool begun) { begun_ = begun; }

  // In a catch block. The host's loop over the queue of a joined frame goes on after an error. The body, which
  // would end it, does not run when the error came before.
  void note_error() {
    if (queue_ == nullptr || begun_) return;
    error_ = std::current_exception();
    queue_->pushShutdownTask();
  }

 protected:
  variable_list apply(variable_list&&) override {
    [[maybe_unused]] const auto state = names_.state();
    begun_ = true;
    try {
      (*body_)();
    } catch (std::exception&) {
      abandon_task();
      throw;
    } catch (...) {
      abandon_task();
      if (base::thread_is_ending()) throw;
      error_ = std::current_exception();
      throw ForeignError();
    }
    return {};
  }

 private:
  // The failing node is reported already, and the host must not report the frame too.
  static void abandon_task() { host::current_graph_task()->has_error_.store(true); }

  const std::function<void()>* body_ = nullptr;
  const FrameRequest* request_ = nullptr;
  ReadyQueue* queue_ = nullptr;
  std::exception_ptr error_;
  bool begun_ = false;
  [[no_unique_address]] host::NamesOfHooks names_;
};

// A frame for one run. The thread keeps the frame for later runs, except a frame of anomaly mode, because that
// frame holds a traceback and a reference to the current node.
class FrameLease {
 public:
  explicit FrameLease(ThreadFrames& frames) : frames_(frames) {
    if (!frames.spare.empty()) {
      node_ = std::move(frames.spare.back());
      frames.spare.pop_back();
    } else {
      keep_ = !AnomalyMode::is_enabled();
      node_ = base::make_node<FrameNode>();
      node_->add_input_metadata(frames.input());
    }
  }
  ~FrameLease() {
    get().disarm();
    if (!keep_) return;
    try {
      frames_.spare.push_back(std::move(node_));
    } catch (const std::bad_alloc&) {  // the next run makes a frame
    }
  }
  FrameLease(const FrameLease&) = delete;
  FrameLease& operator=(const FrameLease&) = delete;

  FrameNode& get() { return static_cast<FrameNode&>(*node_); }
  const base::NodePtr& node() const { return node_; }

 private:
  ThreadFrames& frames_;
  bool keep_ = true;
  base::NodePtr node_;
};

}  // namespace

const at::Tensor& ThreadFrames::input() {
  if (!input_.defined()) input_ = make_ordinary_tensor({0});
  return input_;
}

void HostFrame::run(Engine& engine, ThreadFrames& frames, const FrameRequest& request,
                    const std::function<void()>& body) {
  FrameLease frame(frames);
  frame.get().arm(body, &request);
  const Edge edge(frame.node(), 0);
  base::edge_list outputs;
  // With outputs the host regards the run as pruned, and is_checkpoint_valid() is false.
  if (request.pruned) outputs.push_back(edge);
  try {
    engine.Engine::execute({edge}, {frames.input()}, request.keep_graph, request.warn_create_graph,
                           /*accumulate_grad=*/true, outputs);
  } catch (const ForeignError&) {
    std::rethrow_exception(frame.get().error());
  }
}

bool HostFrame::prepare(GraphTask& task, const base::NodePtr& root) {
  if (!is_frame(*root)) return false;
  const FrameRequest& request = static_cast<const FrameNode&>(*root).request();
  task.thread_locals_.set_grad_mode(request.create_graph);
  task.graph_roots_.clear();
  for (const Edge& edge : *request.roots) task.graph_roots_.push_back(edge.function.get());
  return true;
}

base::NodePtr HostFrame::make_frame(ThreadFrames& frames) {
  base::NodePtr frame = base::make_node<FrameNode>();
  frame->add_input_metadata(frames.input());
  return frame;
}

void HostFrame::join(HostEngine& engine, ThreadFrames& frames, GraphTask& task, const base::NodePtr& frame,
                     const std::shared_ptr<ReadyQueue>& queue, const std::function<void()>& body) {
  if (!frame) {
    const FrameLease own(frames);
    return join(engine, frames, task, own.node(), queue, body);
  }
  // A shutdown task overtakes all other tasks, so the running frame pushes it. That needs no memory: the queue
  // has the place of the frame's own task.
  const std::function<void()> last_body = [&] {
    body();
    queue->pushShutdownTask();
  };
  auto& node = static_cast<FrameNode&>(*frame);
  const auto outer = c10::make_scope_exit([&node, begun = node.begun()] { node.set_begun(begun); });
  node.arm(last_body, nullptr, queue.get());
  queue->push(NodeTask(task.shared_from_this(), frame, InputBuffer(0)));
  engine.run_host_queue();
  if (!node.begun()) std::rethrow_exception(node.error());
}

void HostFrame::note_error(Node& frame) { static_cast<FrameNode&>(frame).note_error(); }

namespace {

// See Note [Current node]. Without memory the next run tries again.
void search_current_node(Engine& engine) {
  try {
    const at::DisableRecordFunctionGuard unseen;
    ThreadFrames frames;
    host::CurrentNodeSearch places;
    const std::function<void()> look = [&] { places.look(*get_current_node()); };
    const base::edge_list no_roots;
    const FrameRequest request{.roots = &no_roots};
    HostFrame::run(engine, frames, request, [&] {
      look();
      HostFrame::run(engine, frames, request, look);
      look();
    });
    places.finish();
  } catch (const std::exception&) {
  }
}

}  // namespace

host::NodeBits* HostFrame::current_node_place(Engine& engine, ThreadFrames& frames) {
  if (frames.current_node == nullptr) {
    const base::NodePtr current = get_current_node();
    if (!current || !is_frame(*current)) return nullptr;
    if (!host::CurrentNodeSearch::is_over()) search_current_node(engine);
    frames.current_node = host::current_node_place(*current);
  }
  return frames.current_node;
}

bool HostFrame::is_frame(const Node& node) { return typeid(node) == typeid(FrameNode); }

void report_exception(Engine& previous, const base::NodePtr& node, std::exception& error) {
  const auto task = std::make_shared<GraphTask>(
      /*keep_graph=*/false, GradMode::is_enabled(), /*reentrant_depth=*/0, /*cpu_ready_queue=*/nullptr,
      c10::SmallVector<Node*, 4>{node.get()});
  previous.thread_on_exception(task, node, error);
}

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
