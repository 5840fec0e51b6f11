// A GraphTask made by hand, as c10d's DistEngine makes its own: nobody's execute() knows
// it. Owned by the test; driven by the thread that calls, whose own ready queue it uses,
// since a thread waits on no other. Does not know what the engine makes of it.
#pragma once

#include "test/support/graph.h"

#include <torch/csrc/autograd/graph_task.h>

namespace overdrive::test {

struct ForeignTaskOptions {
  bool keep_graph = false;
  bool grad_mode = false;
  bool exit_on_error = false;
  bool own_queue = false;  // a queue nobody else waits on: for drive(), never for run()
};

class ForeignTask {
 public:
  // Counts the dependencies below `root`, as Engine::compute_dependencies would.
  explicit ForeignTask(NodePtr root, ForeignTaskOptions options = {});

  // The gradient of this input is captured; then every node of the graph counts as needed.
  void capture(const NodePtr& node, int input, int output,
               std::function<at::Tensor(const at::Tensor&)> hook = nullptr);

  // Through the default engine's execute_with_graph_task.
  c10::intrusive_ptr<at::ivalue::Future> run(const at::Tensor& gradient);

  // Piece by piece, by evaluate_function on the default engine, until the queue is empty.
  void drive(const at::Tensor& gradient);

  torch::autograd::GraphTask& task() { return *task_; }

 private:
  NodePtr root_;
  std::shared_ptr<torch::autograd::GraphTask> task_;
};

}  // namespace overdrive::test
