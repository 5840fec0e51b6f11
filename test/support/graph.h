// Graphs made by hand: nodes with a body given as a lambda, leaves, and the engine's own
// entry (roots, gradients, flags by name). Nodes belong to the edges that name them; any
// thread may build and run. Hooks are in hooks.h.
#pragma once

#include "test/support/pch.h"

#include "engine/base/torch_types.h"

#include <atomic>
#include <functional>
#include <string>

namespace overdrive::test {

using base::NodePtr;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

// A node with a name, a body, and two bodies for the moments around it. Counted, so that
// the fixture sees a graph that outlives its test.
class FunctionNode final : public Node {
 public:
  using Body = std::function<variable_list(variable_list&&)>;

  FunctionNode(std::string name, edge_list edges, Body body);
  FunctionNode(std::string name, uint64_t sequence_nr, edge_list edges, Body body);
  ~FunctionNode() override;

  std::string name() const override { return name_; }
  void release_variables() override {
    if (on_release) on_release();
  }
  void will_release_variables() override {
    if (on_will_release) on_will_release();
  }

  std::function<void()> on_release;
  std::function<void()> on_will_release;
  std::function<void()> on_destroy;
  static int live() { return live_.load(); }

 private:
  variable_list apply(variable_list&& inputs) override { return body_(std::move(inputs)); }

  std::string name_;
  Body body_;
  static std::atomic<int> live_;
};

inline FunctionNode& as_function(const NodePtr& node) { return static_cast<FunctionNode&>(*node); }

// A node with one input like `like` (a tensor of one element by default). Without a body
// it passes its first input to every edge.
NodePtr make_node(const std::string& name, edge_list edges, FunctionNode::Body body = nullptr,
                  const at::Tensor& like = {});
NodePtr make_node_at(uint64_t sequence_nr, const std::string& name, edge_list edges,
                     FunctionNode::Body body = nullptr, const at::Tensor& like = {});

inline Edge edge(const NodePtr& node, uint32_t input = 0) { return Edge(node, input); }

at::Tensor one(double value = 1);   // {value}
at::Tensor leaf(double value = 1);  // the same, asking for a gradient
Edge accumulator(const at::Tensor& leaf);

// A tensor whose grad_fn is `node`: what an op would have returned.
at::Tensor output_of(const NodePtr& node, uint32_t input = 0);

double value_of(const at::Tensor& tensor);  // sum of all elements, NaN when undefined

// One call of the default engine. By default like Tensor::backward().
struct Backward {
  edge_list roots;
  variable_list grads = {};  // ones where missing
  bool keep_graph = false;
  bool create_graph = false;
  bool accumulate_grad = true;
  edge_list outputs = {};
};
variable_list run(Backward call);

// Stock leaves what was ready when a backward failed in its thread's queue, nodes and
// gradients, until the thread's next backward. This is that next one.
void forget_failed_run();

}  // namespace overdrive::test
