#include "bench/device_graphs.h"

#include <ATen/ATen.h>

namespace overdrive::bench {
namespace {

at::Tensor one_on(int device) {
  return at::ones({1}, at::Device(at::kPrivateUse1, static_cast<at::DeviceIndex>(device)));
}

// Hands its gradient to every edge; or, between devices, one that was made on the next device beforehand, so
// that no copy is part of a figure.
struct Station : Node {
  variable_list apply(variable_list&& gradients) override {
    return variable_list(num_outputs(), replacement.defined() ? replacement : gradients[0]);
  }
  std::string name() const override { return "Station"; }
  at::Tensor replacement;
};

NodePtr station(const at::Tensor& like, const edge_list& to, at::Tensor replacement = {}) {
  NodePtr node = base::make_node<Station>();
  node->add_input_metadata(like);
  for (const Edge& edge : to) node->add_next_edge(edge);
  static_cast<Station&>(*node).replacement = std::move(replacement);
  return node;
}

// A chain of nodes on `devices`, first to run first. Its last node has no edge.
Edge chain(const std::vector<int>& devices) {
  Edge last;
  int device_of_last = -1;
  for (auto device = devices.rbegin(); device != devices.rend(); ++device) {
    edge_list to;
    if (last.is_valid()) to.push_back(last);
    const bool leaves = last.is_valid() && device_of_last != *device;
    last = Edge(station(one_on(*device), to, leaves ? one_on(device_of_last) : at::Tensor()), 0);
    device_of_last = *device;
  }
  return last;
}

// The root is on the CPU: a graph that is on one device as a whole runs on the thread that calls.
Graph from_cpu(const edge_list& chains, const at::Tensor& first) {
  Graph graph;
  graph.roots = {Edge(station(at::ones({1}), chains, first), 0)};
  graph.root_gradients = {at::ones({1})};
  graph.runs_to_warm_up = 2;
  graph.threads_live_on = true;
  return graph;
}

Graph one_worker(int64_t nodes) {
  return from_cpu({chain(std::vector<int>(static_cast<size_t>(nodes), 1))}, one_on(1));
}

// The same with nodes that give nothing, so that no gradient is added and no stream asked for.
Graph one_worker_without_gradients(int64_t nodes) {
  struct Silent : Node {
    variable_list apply(variable_list&&) override { return variable_list(num_outputs()); }
    std::string name() const override { return "Silent"; }
  };
  const at::Tensor like = one_on(1);
  Edge last;
  for (int64_t i = 0; i < nodes; ++i) {
    NodePtr node = base::make_node<Silent>();
    node->add_input_metadata(like);
    if (last.is_valid()) node->add_next_edge(last);
    last = Edge(std::move(node), 0);
  }
  return from_cpu({last}, like);
}

Graph ping_pong(int64_t hand_overs) {
  std::vector<int> devices;
  for (int64_t i = 0; i < hand_overs; ++i) devices.push_back(1 + static_cast<int>(i % 2));
  return from_cpu({chain(devices)}, one_on(1));
}

// {root} --> `batches` chains, each over all devices in turn with four nodes on each.
Graph pipeline(int64_t batches) {
  std::vector<int> devices;
  for (int device = 0; device < kPipelineDevices; ++device) devices.insert(devices.end(), 4, device);
  edge_list chains;
  for (int64_t i = 0; i < batches; ++i) chains.push_back(chain(devices));
  return from_cpu(chains, one_on(0));
}

Graph one_device(int64_t nodes) {
  const at::Tensor x = one_on(1).set_requires_grad(true);
  at::Tensor y = x;
  for (int64_t i = 0; i < nodes; ++i) y = y * 1.0001;
  Graph graph;
  graph.roots = {torch::autograd::impl::gradient_edge(y)};
  graph.root_gradients = {at::ones_like(y)};
  graph.leaves = {x};
  graph.runs_to_warm_up = 2;
  graph.threads_live_on = true;
  return graph;
}

}  // namespace

const std::vector<GraphKind>& device_graph_kinds() {
  static const auto* kinds = new std::vector<GraphKind>{
      {"worker", "nodes that give nothing, through one worker", one_worker_without_gradients, {1'000}, {100}},
      {"worker_gradients", "nodes that pass a gradient on, through one worker", one_worker, {1'000}, {100}},
      {"ping_pong", "two devices in turn", ping_pong, {200}, {20}},
      {"pipeline", "8 devices, four nodes on each", pipeline, {1, 8}, {2}},
      {"one_device", "t * c on one device", one_device, {100}, {10}},
  };
  return *kinds;
}

}  // namespace overdrive::bench
