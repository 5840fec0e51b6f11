// Runs a body inside a graph task of LibTorch's own, so that queue_callback(),
// get_current_graph_task_*() and Node::task_should_compute_output() work in nodes and hooks.
// Used on the calling thread, and by the workers that join it; frames nest.
//
// Note [Host frame]: those functions read a thread-local that only the host's own loop sets. The
// exported door to it is Engine::execute of the base class, called on our own object with one edge
// to a node of ours, the frame, whose apply() is the body. The base class then makes a real
// graph task (id, reentrant depth, the thread's own queue), calls our virtual
// execute_with_graph_task(), which completes the task, and runs the frame as its only node;
// warnings are replayed and final callbacks run when the body returns. Rejected: a ready queue of
// our own through init_local_ready_queue(), which leaves a stock backward that is under way on the
// thread waiting for ever.
// A second thread must not enter the task by execute_with_graph_task(): the first to finish would never be
// woken. It gets a frame as a task of the same graph task through a queue of its own, and leaves the
// host's loop by a shutdown task. The caller's frame must be the last to end, or the task would be taken
// for completed on the wrong thread.
#pragma once

#include "engine/host/current_node.h"
#include "engine/host/host_engine.h"

#include <functional>
#include <memory>
#include <vector>

namespace overdrive::engine {

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
  // Runs `body` inside a frame. What it throws comes out unchanged, of any type; then the final
  // callbacks did not run. What a callback throws comes out, too.
  static void run(base::Engine& engine, ThreadFrames& frames, const FrameRequest& request,
                  const std::function<void()>& body);

  // The hook for OverdriveEngine::execute_with_graph_task(): completes `task` when `root` is the
  // frame that this thread is about to enter. False for any other task.
  static bool prepare(base::GraphTask& task, const base::NodePtr& root);

  // A second thread, one that live_as_host_thread() made, enters the task of a frame that another thread is
  // in and stays in: runs `body`, which must not throw, with the task as its own. `frame` comes from
  // make_frame(), where others have to know it beforehand, or is null; the thread may join with it again from
  // inside.
  static void join(HostEngine& engine, ThreadFrames& frames, base::GraphTask& task, const base::NodePtr& frame,
                   const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   const std::function<void()>& body);
  static base::NodePtr make_frame(ThreadFrames& frames);

  // True when `node` is a frame.
  static bool is_frame(const base::Node& node);

  // Where get_current_node() looks on this thread (Note [Current node]), or null. In a frame.
  static host::NodeBits* current_node_place(ThreadFrames& frames);
};

// Calls the previous engine's thread_on_exception() for `node`, with a graph task made for the
// purpose: the error is that of a backward, and ours may have no graph task, or share one. Prints
// the forward traceback in anomaly mode. Call it inside a catch block.
void report_exception(base::Engine& previous, const base::NodePtr& node, std::exception& error);

}  // namespace overdrive::engine
