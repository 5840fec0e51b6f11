// The counterpart of Differences.TheNodesOfATaskAreListedOnlyWhereTheListIsRead: a program that calls the
// functions by name finds the lists filled.
#include "engine/engine.h"

#include "test/support/engines.h"
#include "test/support/pch.h"

#include <map>
#include <set>
#include <sstream>

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

// The order as it is told inside each node, and the lists' sizes; nodes by their place in the forward pass.
// LibTorch tells the order until a node has run, and ends in an assertion of its own after that.
//   {x} --b, c, d--> {b + c} --> {b + c + d, b * d} --> loss
std::vector<std::string> told_by_each_node() {
  const auto x = torch::ones({2}, torch::requires_grad());
  const auto b = x * 2, c = b * 3, d = c.exp(), e = b + c, f = e + d, g = b * d, loss = (f * g).sum();
  std::map<const Node*, size_t> number;
  for (const auto& tensor : {b, c, d, e, f, g, loss}) number.emplace(tensor.grad_fn().get(), number.size());
  number.emplace(loss.grad_fn()->next_edge(0).function.get(), number.size());
  std::vector<std::string> told;
  for (const auto& tensor : {x, b, c, d, e, f, g, loss}) {
    tensor.register_hook([&](const torch::Tensor&) {
      std::ostringstream text;
      try {
        for (const Node* node : get_current_graph_task_execution_order()) {
          const auto known = number.find(node);
          text << (known == number.end() ? node->name() : std::to_string(known->second)) << " ";
        }
      } catch (const c10::Error& error) {
        text << error.msg();
      }
      text << "of " << get_current_graph_task_nodes_in_graph()->size();
      told.push_back(text.str());
    });
  }
  auto& state = c10::AutogradState::get_tls_state();
  state.set_multithreading_enabled(false);
  loss.backward();
  state.set_multithreading_enabled(true);
  return told;
}

TEST(ViewReaders, TheOrderIsToldAndRefusedAsOnStock) {
  const auto stocks = overdrive::test::on<overdrive::test::StockEngine>(told_by_each_node);
  EXPECT_EQ(overdrive::test::on<overdrive::test::Overdrive>(told_by_each_node), stocks);
  EXPECT_EQ(stocks.size(), 8u);
  EXPECT_GT(std::set<std::string>(stocks.begin(), stocks.end()).size(), 1u) << "it changes on the way";
}

}  // namespace
