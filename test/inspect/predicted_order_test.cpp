// The order that is told before a backward is the order of the backward.
#include "inspect/graph/predicted_order.h"

#include "test/support/contract.h"

#include <algorithm>
#include <random>

namespace overdrive::test {
namespace {

using torch::autograd::Node;

class PredictedOrder : public ContractBase {
 protected:
  void SetUp() override {
    ContractBase::SetUp();
    install();
  }
};

std::vector<const Node*> predicted(const variable_list& roots, const variable_list& inputs = {}) {
  std::vector<const Node*> nodes;
  for (const inspect::OrderedNode& node : predicted_order(roots, inputs)) {
    if (!node.captured_only) nodes.push_back(node.node);
  }
  return nodes;
}

// The nodes that a call runs. A hook is no part of the order.
class Recorder {
 public:
  void follow(const at::Tensor& root) {
    std::vector<NodePtr> found{torch::autograd::impl::gradient_edge(root).function};
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::find(known_.begin(), known_.end(), found[i].get()) != known_.end()) continue;
      known_.push_back(found[i].get());
      hook(*found[i]);
      for (const Edge& edge : found[i]->next_edges()) {
        if (edge.function) found.push_back(edge.function);
      }
    }
  }
  const std::vector<const Node*>& ran() const { return ran_; }

 private:
  struct Hook final : torch::autograd::FunctionPreHook {
    Hook(std::vector<const Node*>& into, const Node* of) : ran(into), node(of) {}
    variable_list operator()(const variable_list& grads) override {
      ran.push_back(node);
      return grads;
    }
    std::vector<const Node*>& ran;
    const Node* node;
  };
  void hook(Node& node) { node.add_pre_hook(std::make_unique<Hook>(ran_, &node)); }

  std::vector<const Node*> known_;
  std::vector<const Node*> ran_;
};

// Operators with many equal ranks: leaves, and nodes of several fresh threads.
at::Tensor random_graph(uint64_t seed, variable_list& inner) {
  std::mt19937_64 random(seed);
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back(at::ones({2}).requires_grad_());
  for (int i = 0; i < 24; ++i) {
    const at::Tensor a = tensors[random() % tensors.size()], b = tensors[random() % tensors.size()];
    const auto make = [&] { tensors.push_back(random() % 3 == 0 ? a.sin() : a * b); };
    if (random() % 2 == 0) {
      std::thread(make).join();  // its numbers begin at 0
    } else {
      make();
    }
  }
  inner = {tensors[1], tensors[8], tensors[17]};
  at::Tensor sum = tensors[0];
  for (const at::Tensor& tensor : tensors) sum = sum + tensor;
  return sum.sum();
}

TEST_F(PredictedOrder, IsTheOrderOfRandomBackwards) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    variable_list inner;
    const at::Tensor root = random_graph(seed, inner);
    Recorder recorder;
    recorder.follow(root);
    const auto expected = predicted({root});
    root.backward();
    EXPECT_EQ(recorder.ran(), expected) << "seed " << seed;
  }
}

TEST_F(PredictedOrder, KnowsSeveralRootsAndInputs) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    variable_list inner;
    const at::Tensor root = random_graph(seed, inner);
    const variable_list roots = {root, root.sin(), root * 2};
    Recorder recorder;
    for (const at::Tensor& each : roots) recorder.follow(each);
    const auto expected = predicted(roots, inner);
    torch::autograd::grad(roots, inner);
    EXPECT_EQ(recorder.ran(), expected) << "seed " << seed;
  }
}

TEST_F(PredictedOrder, KnowsWhatTheBackwardAroundHasReady) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    variable_list inner;
    const at::Tensor root = random_graph(seed, inner);
    const at::Tensor x = leaf();
    variable_list outer_tensors;
    for (int i = 0; i < 5; ++i) outer_tensors.push_back(x * 2);
    std::vector<const Node*> expected;
    Recorder recorder;
    const NodePtr around = make_node("around", {accumulator(leaf())}, [&](variable_list&& grads) {
      recorder.follow(root);
      expected = predicted({root});
      root.backward();
      return std::move(grads);
    });
    at::Tensor sum = output_of(around);
    for (const at::Tensor& tensor : outer_tensors) sum = sum + tensor;
    sum.sum().backward();
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(recorder.ran(), expected) << "seed " << seed;
  }
}

TEST_F(PredictedOrder, IsEmptyForAnInputThatNoBackwardReaches) {
  const at::Tensor x = leaf();
  EXPECT_TRUE(predicted({x * 2}, {leaf()}).empty());
  EXPECT_THROW(predicted_order({one()}), c10::Error);
}

}  // namespace
}  // namespace overdrive::test
