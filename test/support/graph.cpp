#include "test/support/graph.h"

#include <limits>

namespace overdrive::test {

std::atomic<int> FunctionNode::live_{0};

FunctionNode::FunctionNode(std::string name, edge_list edges, Body body)
    : Node(std::move(edges)), name_(std::move(name)), body_(std::move(body)) {
  ++live_;
}

FunctionNode::FunctionNode(std::string name, uint64_t sequence_nr, edge_list edges, Body body)
    : Node(sequence_nr, std::move(edges)), name_(std::move(name)), body_(std::move(body)) {
  ++live_;
}

FunctionNode::~FunctionNode() {
  --live_;
  if (on_destroy) on_destroy();
}

namespace {

FunctionNode::Body or_pass_on(FunctionNode::Body body, size_t edges) {
  if (body) return body;
  return [edges](variable_list&& in) { return variable_list(edges, in.at(0)); };
}

NodePtr with_input(NodePtr node, const at::Tensor& like) {
  node->add_input_metadata(like.defined() ? like : one());
  return node;
}

}  // namespace

NodePtr make_node(const std::string& name, edge_list edges, FunctionNode::Body body, const at::Tensor& like) {
  const auto count = edges.size();
  return with_input(base::make_node<FunctionNode>(name, std::move(edges), or_pass_on(std::move(body), count)),
                    like);
}

NodePtr make_node_at(uint64_t sequence_nr, const std::string& name, edge_list edges, FunctionNode::Body body,
                     const at::Tensor& like) {
  const auto count = edges.size();
  return with_input(
      base::make_node<FunctionNode>(name, sequence_nr, std::move(edges), or_pass_on(std::move(body), count)),
      like);
}

at::Tensor one(double value) { return torch::full({1}, value); }
at::Tensor leaf(double value) { return one(value).requires_grad_(true); }
Edge accumulator(const at::Tensor& leaf) { return Edge(torch::autograd::impl::grad_accumulator(leaf), 0); }

at::Tensor output_of(const NodePtr& node, uint32_t input) {
  auto tensor = one();
  torch::autograd::impl::set_gradient_edge(tensor, Edge(node, input));
  return tensor;
}

double value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::numeric_limits<double>::quiet_NaN();
  at::NoGradGuard no_grad;
  return tensor.detach().to_dense().sum().item<double>();
}

variable_list run(Backward call) {
  while (call.grads.size() < call.roots.size()) call.grads.push_back(one());
  return Engine::get_default_engine().execute(call.roots, call.grads, call.keep_graph, call.create_graph,
                                              call.accumulate_grad, call.outputs);
}

void forget_failed_run() { run({.roots = {edge(make_node("next", {}))}}); }

}  // namespace overdrive::test
