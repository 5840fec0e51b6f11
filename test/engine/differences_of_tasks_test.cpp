// Where we differ from stock on purpose in the task that code inside a backward sees, and in what hangs on it:
// rows of docs/differences.md. This program must not call get_current_graph_task_nodes_in_graph() by name: one
// test is about programs that do not.
#include "test/engine/differences_fixture.h"

#include <dlfcn.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/library.h>

namespace {

using namespace overdrive::test;

// `backward` puts down which task its code saw: stock's, and of ours the one only that Exact::kAlways makes.
void expect_no_task_unless_asked(const std::function<void()>& backward, const int& task_id) {
  on_stock(backward);
  EXPECT_GE(task_id, 0);
  on_ours(backward);
  EXPECT_EQ(task_id, -1);
  overdrive::Options always;
  always.exact = overdrive::engine::Exact::kAlways;
  on_ours(backward, always);
  EXPECT_GE(task_id, 0);
}

// A saved tensor's hook that nobody but the node knows of.
struct UnpackHook : SavedVariableHooks {
  torch::Tensor kept;
  int* task_id;
  void call_pack_hook(const at::Tensor& tensor) override { kept = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    *task_id = get_current_graph_task_id();
    return kept;
  }
};

TEST(Differences, AHookOnASavedTensorOfAHostNodeSeesNoTaskUnlessAsked) {
  int task_id = 0;
  const auto run_with_hook = [&] {
    auto x = torch::ones({2}, torch::requires_grad());
    auto y = x.exp();
    auto hook = std::make_unique<UnpackHook>();
    hook->task_id = &task_id;
    static_cast<generated::ExpBackward0*>(y.grad_fn().get())->result_.register_hooks(std::move(hook));
    y.sum().backward();
    EXPECT_TRUE(torch::equal(x.grad(), y.detach()));
  };
  expect_no_task_unless_asked(run_with_hook, task_id);
}

// Since 2.15: the sums so far that what `node` returns will be added to.
template <typename N>
constexpr bool kMayAskForSums = requires(N* node) { get_current_input_grad_buffers(node); };
template <typename N>
torch::Tensor first_sum_after(N* node) {
  if constexpr (kMayAskForSums<N>) return get_current_input_grad_buffers(node).front();
  return {};
}

TEST(Differences, NoNodeIsLentTheSumThatItsGradientWillBeAddedTo) {
  if (!kMayAskForSums<Node>) GTEST_SKIP() << "before LibTorch 2.15 no node can ask for it";
  // {root} --+--> {first} --+--> {last}
  //          +--> {asks}  --+
  float received = 0;
  const auto is_borrowed_one = [&] {
    bool lent = false;
    auto last = make_body([&](variable_list&& gradients) -> variable_list {
      received = gradients[0].item<float>();
      return {};
    });
    auto first = make_body([](variable_list&&) -> variable_list { return {torch::ones({1})}; });
    auto asks = make_body({});
    asks->body = [&lent, node = static_cast<Node*>(asks.get())](variable_list&&) -> variable_list {
      const torch::Tensor sum = first_sum_after(node);
      lent = sum.defined();
      if (!lent) return {torch::full({1}, 2.0F)};
      sum.add_(2);
      return {torch::Tensor()};
    };
    auto root = make_body([](variable_list&&) -> variable_list {
      return {torch::ones({1}), torch::ones({1})};
    });
    last->set_sequence_nr(0);
    asks->set_sequence_nr(1);
    first->set_sequence_nr(2);
    root->set_sequence_nr(3);
    first->set_next_edges({Edge(last, 0)});
    asks->set_next_edges({Edge(last, 0)});
    root->set_next_edges({Edge(first, 0), Edge(asks, 0)});
    run(root);
    return lent;
  };
  on_stock([&] { EXPECT_TRUE(is_borrowed_one()); });
  EXPECT_EQ(received, 3);
  on_ours([&] { EXPECT_FALSE(is_borrowed_one()); });
  EXPECT_EQ(received, 3);
}

int task_of_the_kernel = 0;

torch::Tensor native_cosh(const torch::Tensor& x) {
  task_of_the_kernel = get_current_graph_task_id();
  return (x.exp() + x.neg().exp()) / 2;
}

TEST(Differences, AKernelInThePlaceOfLibTorchsOwnSeesNoTaskUnlessAsked) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("cosh", &native_cosh);
  const auto backward_of_sinh = [] {
    auto x = torch::ones({2}, torch::requires_grad());
    task_of_the_kernel = -2;
    x.sinh().backward(torch::ones({2}));  // the derivative calls cosh()
  };
  expect_no_task_unless_asked(backward_of_sinh, task_of_the_kernel);
}

int calls_of_the_kernel = 0;

torch::Tensor native_tanh_backward(const torch::Tensor& gradient, const torch::Tensor& result) {
  ++calls_of_the_kernel;
  return gradient * (1 - result * result);
}

TEST(Differences, AKernelInThePlaceOfLibTorchsOwnIsNotCalledByNativeNodesUnlessAsked) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("tanh_backward", &native_tanh_backward);
  const auto calls = [] {
    calls_of_the_kernel = 0;
    torch::ones({2}, torch::requires_grad()).tanh().backward(torch::ones({2}));
    return calls_of_the_kernel;
  };
  on_stock([&] { EXPECT_EQ(calls(), 1); });
  on_ours([&] { EXPECT_EQ(calls(), 0); });
  overdrive::Options asked;
  asked.own_nodes = false;
  on_ours([&] { EXPECT_EQ(calls(), 1); }, asked);
}

struct NodeWithLastWords : Body {
  std::function<void()> last_words;
  ~NodeWithLastWords() override { last_words(); }
};

TEST(Differences, ANodeThatTheRunAloneOwnedEndsInTheModesOfTheRun) {
  // {root} --> {last}       the last node takes the root's edge away, so that nobody but the run has it
  const auto modes_at_the_end = [] {
    std::pair<bool, bool> modes{};
    auto last = make_typed_node<NodeWithLastWords>();
    last->add_input_metadata(torch::ones({1}));
    last->last_words = [&] { modes = {torch::GradMode::is_enabled(), get_current_graph_task_id() != -1}; };
    auto root = make_body([](variable_list&& gradients) { return std::move(gradients); });
    root->set_next_edges({Edge(last, 0)});
    last->body = [&root](variable_list&&) -> variable_list {
      root->set_next_edges({});
      return {};
    };
    last = {};
    run(root);
    return modes;
  };
  on_stock([&] { EXPECT_EQ(modes_at_the_end(), (std::pair{true, false})); });
  on_ours([&] { EXPECT_EQ(modes_at_the_end(), (std::pair{false, true})); });
}

TEST(Differences, TheNodesOfATaskAreListedOnlyWhereTheListIsRead) {
  using Reader = const std::unordered_set<Node*>* (*)();
  const auto reader = reinterpret_cast<Reader>(
      dlsym(RTLD_DEFAULT, "_ZN5torch8autograd37get_current_graph_task_nodes_in_graphEv"));
  ASSERT_NE(reader, nullptr);
  size_t listed = 0;
  const auto count_nodes = [&] {
    auto x = torch::ones({2}, torch::requires_grad());
    auto y = x;
    for (int i = 0; i < 20; ++i) y = y * 2;
    y.register_hook([&](const torch::Tensor&) { listed = reader()->size(); });
    y.sum().backward();
  };
  on_stock(count_nodes);
  EXPECT_EQ(listed, 21u);
  on_ours(count_nodes);
  EXPECT_EQ(listed, 0u);
  overdrive::Options on;
  on.exact = overdrive::engine::Exact::kAlways;
  on_ours(count_nodes, on);
  EXPECT_EQ(listed, 21u);
}

}  // namespace
