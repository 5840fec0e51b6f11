// Graphs of every size and shape on small stacks: no recursion, no quadratic step.
// Nothing is timed here; a quadratic engine would run into CTest's timeout.
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/process.h"
#include "test/support/sanitized.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Size);

constexpr size_t kKiB = 1024;

const int kMany = sanitized() ? 50'000 : 1'000'000;
const size_t kStack = (sanitized() ? 2'048 : 256) * kKiB;  // a sanitizer's frames are larger

NodePtr chain(int length, edge_list end) {
  auto node = make_node("end", std::move(end));
  const auto like = one();
  for (int i = 1; i < length; ++i) node = make_node("n", {edge(node)}, nullptr, like);
  return node;
}

TYPED_TEST(Size, AMillionNodesInAChainOnASmallStack) {
  auto x = leaf();
  on_stack_of(kStack, [&] {
    auto top = chain(kMany, {accumulator(x)});
    run({.roots = {edge(top)}});
  });
  EXPECT_EQ(value_of(x.grad()), 1);
}

TYPED_TEST(Size, AMillionNodesInAChainKeptAndRunTwice) {
  auto x = leaf();
  on_stack_of(kStack, [&] {
    auto top = chain(kMany / 10, {accumulator(x)});
    run({.roots = {edge(top)}, .keep_graph = true});
    run({.roots = {edge(top)}, .keep_graph = true});
  });
  EXPECT_EQ(value_of(x.grad()), 2);
}

TYPED_TEST(Size, AMillionLeaves) {
  std::vector<at::Tensor> leaves;
  edge_list edges;
  for (int i = 0; i < kMany; ++i) {
    leaves.push_back(leaf());
    edges.push_back(accumulator(leaves.back()));
  }
  auto root = make_node("root", std::move(edges));
  run({.roots = {edge(root)}});
  EXPECT_EQ(value_of(leaves.front().grad()), 1);
  EXPECT_EQ(value_of(leaves.back().grad()), 1);
}

TYPED_TEST(Size, ANodeWith100000EdgesToOneLeaf) {
  auto x = torch::zeros({1}, torch::kDouble).requires_grad_(true);
  auto root = make_node("root", edge_list(100'000, accumulator(x)), [](variable_list&&) {
    return variable_list(100'000, torch::ones({1}, torch::kDouble));
  });
  run({.roots = {edge(root)}});
  EXPECT_EQ(value_of(x.grad()), 100'000);
}

TYPED_TEST(Size, ANodeWithTenThousandInputs) {
  auto sum = make_node("sum", {}, [](variable_list&& in) {
    EXPECT_EQ(in.size(), 10'000u);
    EXPECT_EQ(value_of(in.front()) + value_of(in.back()), 2);
    return variable_list{};
  });
  edge_list edges;
  for (uint32_t i = 0; i < 10'000; ++i) {
    if (i) sum->add_input_metadata(one());
    edges.push_back(edge(sum, i));
  }
  run({.roots = {edge(make_node("root", std::move(edges)))}});
}

TYPED_TEST(Size, AMillionNodesAreFreedOnASmallStack) {
  on_stack_of(kStack, [&] {
    auto top = chain(kMany, {});
    top = nullptr;
  });
  EXPECT_EQ(FunctionNode::live(), 0);
}

TYPED_TEST(Size, GradOfTheBottomOfALongChain) {
  auto x = leaf();
  on_stack_of(kStack, [&] {
    auto root = output_of(chain(kMany / 10, {accumulator(x)}));
    EXPECT_EQ(value_of(torch::autograd::grad({root}, {x})[0]), 1);
  });
}

}  // namespace
}  // namespace overdrive::test
