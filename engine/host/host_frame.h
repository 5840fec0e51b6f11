// Runs a body inside a graph task of LibTorch, so queue_callback(), get_current_graph_task_*() and
// Node::task_should_compute_output() work in nodes and hooks. No owner: static functions. Used by the calling
// thread and by the workers that join its run; frames nest. Leaves the run inside to the body.
//
// Note [Host frame]: these functions read a thread-local that only the host's loop sets. Engine::execute of the
// base class is the exported entry to this loop. run() calls it on Overdrive's object, with one edge to a node
// of Overdrive, the frame. The apply() of the frame is the body. The base class makes a real graph task (id,
// reentrant depth, the thread's own queue) and calls the virtual execute_with_graph_task(). Overdrive's
// override completes the task, and the base class runs the frame as its only node. After the body, the host
// replays warnings and runs final callbacks. Rejected: a ready queue through init_local_ready_queue(), because
// a stock backward that is under way on the thread then waits for ever.
// A second thread must not enter the task by execute_with_graph_task(), because the host would never wake the
// first thread that finishes. A second thread gets a frame as a task of the same graph task, through a queue of
// its own, and a shutdown task ends its loop. The caller's frame must end last. Otherwise the host would
// complete the task on the wrong thread.
#pragma once

#include "engine/host/current_node.h"

#include <functional>
#include <memory>
#include <vector>

namespace overdrive::engine {

// The part of our Engine subclass that makes threads of the host's: a worker's thread lives inside the host's
// own loop. The base of OverdriveEngine, so that frames and workers need not know that. Any thread.
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

struct FrameRequest {
  bool keep_graph = false;
  bool create_graph = false;
  bool warn_create_graph = false;  // this call owes stock's warning about create_graph
  bool pruned = false;             // is_checkpoint_valid() is false inside
  const base::edge_list* roots = nullptr;
};

// A thread's frames and all that they need. Of its thread alone.
struct ThreadFrames {
  std::vector<base::NodePtr> spare;
  host::NodeBits* current_node = nullptr;  // see Note [Current node]

  // The gradient that frames are called with. One a thread: threads must not share a reference count.
  const at::Tensor& input();

 private:
  at::Tensor input_;
};

class HostFrame {
 public:
  // Runs `body` inside a frame. An error of the body, of any type, comes out unchanged, and final callbacks do
  // not run then. An error of a callback comes out too.
  static void run(base::Engine& engine, ThreadFrames& frames, const FrameRequest& request,
                  const std::function<void()>& body);

  // For OverdriveEngine::execute_with_graph_task(): completes `task` when `root` is the frame that this thread
  // enters. False for any other task.
  static bool prepare(base::GraphTask& task, const base::NodePtr& root);

  // A second thread enters the task of a frame that another thread holds open, and runs `body` with that task
  // as its current one. The thread comes from live_as_host_thread(). `body` must not throw. `frame` comes from
  // make_frame(), when others must know the frame before, or is null. The thread may join with the same frame
  // again from inside.
  static void join(HostEngine& engine, ThreadFrames& frames, base::GraphTask& task, const base::NodePtr& frame,
                   const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   const std::function<void()>& body);
  static base::NodePtr make_frame(ThreadFrames& frames);

  // For OverdriveEngine::thread_on_exception(), in a catch block: ends the loop of a thread that joined, when
  // the error came before the body. join() then throws it.
  static void note_error(base::Node& frame);

  // True when `node` is a frame.
  static bool is_frame(const base::Node& node);

  // Inside a frame: the variable of this thread that get_current_node() reads (Note [Current node]), or null.
  // The first call of the process searches it, in frames of `engine` inside of the frame.
  static host::NodeBits* current_node_place(base::Engine& engine, ThreadFrames& frames);
};

// Calls the previous engine's thread_on_exception() for `node`, with a graph task made for this call, because a
// backward may have no graph task or share one. Prints the forward traceback in anomaly mode. Call this
// function inside a catch block.
void report_exception(base::Engine& previous, const base::NodePtr& node, std::exception& error);

}  // namespace overdrive::engine
