// Compiled autograd runs the nodes of a graph by itself. Hooks then keep the rules of an eager backward,
// whatever their schedule. That of a Python process takes no hooks of C++: python_hooks_test.py.
#include "test/hooks/fetch_ahead_fixture.h"

#include <torch/csrc/autograd/graph_task.h>

namespace overdrive::hooks {
namespace {

using test::NodePtr;
using test::variable_list;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using torch::autograd::Engine;

// A chain, node by node, up to what is asked for.
variable_list run_chain(const NodePtr& root, const torch::autograd::GraphTask&, bool,
                        const torch::autograd::edge_list& outputs) {
  variable_list grads = (*root)({});
  for (base::Node* node = root->next_edge(0).function.get(); node != outputs.at(0).function.get();
       node = node->next_edge(0).function.get()) {
    grads = (*node)(std::move(grads));
  }
  return grads;
}

class UnderCompiledAutograd : public Ahead {
 protected:
  // {x} --Exp--> {a} --Sin--> {b} --Sum--> {loss}
  Tensor gradient(const HooksPtr& hooks, bool compiled) {
    Tensor loss;
    {
      const ScopedHooks scope(hooks, {.share = false});
      loss = x_.exp().sin().sum();
    }
    if (compiled) Engine::set_compiled_autograd(run_chain);
    const Tensor grad = torch::autograd::grad({loss}, {x_})[0];
    Engine::set_compiled_autograd(nullptr);
    return grad;
  }
};

TEST_F(UnderCompiledAutograd, HooksPackAtTheSaveAndUnpackWhereTheNodeAsks) {
  const Tensor expected = gradient(nullptr, /*compiled=*/false);
  EXPECT_TRUE(same_bits(gradient(watched_, /*compiled=*/true), expected));
  EXPECT_EQ(stats().forwarded["compiled autograd"], 1u);
  EXPECT_THAT(watched_->asked(), ElementsAre(2u, 1u)) << "in the order of the nodes";
  EXPECT_THAT(watched_->asked_on(), Each(std::this_thread::get_id()));
  EXPECT_THAT(watched_->fetched(), IsEmpty());
}

TEST_F(UnderCompiledAutograd, NothingIsFetchedAhead) {
  const Tensor expected = gradient(nullptr, /*compiled=*/false);
  EXPECT_TRUE(same_bits(gradient(ahead(), /*compiled=*/true), expected));
  EXPECT_THAT(watched_->fetched(), IsEmpty()) << "the run is not ours to follow";
  EXPECT_THAT(watched_->asked(), SizeIs(2));
  EXPECT_EQ(stats().ahead_misses, 2u);
}

TEST_F(UnderCompiledAutograd, WhatWaitsIsUsedAsItIs) {
  const Tensor expected = gradient(nullptr, /*compiled=*/false);
  EXPECT_TRUE(same_bits(gradient(schedulable(copying_), /*compiled=*/true), expected));
  EXPECT_THAT(copying_->packed, IsEmpty());
  EXPECT_THAT(copying_->nodes, IsEmpty());
}

}  // namespace
}  // namespace overdrive::hooks
