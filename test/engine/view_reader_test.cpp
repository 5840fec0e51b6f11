// The counterpart of Differences.TheNodesOfATaskAreListedOnlyWhereTheListIsRead: a program that calls the
// functions by name finds the lists filled.
#include "engine/engine.h"

#include "test/support/pch.h"

namespace {

using namespace torch::autograd;

TEST(ViewReaders, AProgramThatCallsThemByNameFindsTheListsFilled) {
  overdrive::ScopedInstall installed;
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x;
  for (int i = 0; i < 20; ++i) y = y * 2;
  size_t listed = 0, ordered = 0;
  y.register_hook([&](const torch::Tensor&) {
    listed = get_current_graph_task_nodes_in_graph()->size();
    if (ordered == 0) ordered = get_current_graph_task_execution_order().size();
  });
  // The host refuses to tell the order while device threads might change it.
  auto& state = c10::AutogradState::get_tls_state();
  state.set_multithreading_enabled(false);
  y.backward(torch::ones({2}));
  state.set_multithreading_enabled(true);
  EXPECT_EQ(listed, 20u);  // all but the root, which nothing leads to
  EXPECT_EQ(ordered, 21u);
}

}  // namespace
