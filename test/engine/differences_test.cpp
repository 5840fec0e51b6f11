// Where we differ from stock on purpose: each row of docs/differences.md names a test in here, which
// shows what stock does and what we do. This program must not call
// get_current_graph_task_nodes_in_graph() by name: one test is about programs that do not.
#include "engine/engine.h"

#include "test/support/pch.h"
#include "test/support/typed_node.h"

#include <dlfcn.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/library.h>

#include <thread>

namespace {

using namespace torch::autograd;

// Runs `body` on one engine, on a thread of its own: some of what stock does it leaves behind there.
template <typename Body>
void on_stock(Body body) {
  std::thread(body).join();
}
template <typename Body>
void on_ours(Body body, const overdrive::Options& options = {}) {
  overdrive::ScopedInstall installed(options);
  std::thread(body).join();
}

struct Body : Node {
  std::function<variable_list(variable_list&&)> body;
  variable_list apply(variable_list&& gradients) override { return body(std::move(gradients)); }
  std::string name() const override { return "Body"; }
};

auto make_body(std::function<variable_list(variable_list&&)> body) {
  auto node = overdrive::test::make_typed_node<Body>();
  node->add_input_metadata(torch::ones({1}));
  node->body = std::move(body);
  return node;
}

void run(const overdrive::base::NodePtr& root, const torch::Tensor& gradient = torch::ones({1})) {
  Engine::get_default_engine().execute({Edge(root, 0)}, {gradient}, /*keep_graph=*/false, false, true);
}

void nest(int depth, const std::function<void()>& at_the_bottom) {
  run(make_body([&, depth](variable_list&&) -> variable_list {
    depth == 0 ? at_the_bottom() : nest(depth - 1, at_the_bottom);
    return {};
  }));
}

TEST(Differences, ADeepNestStaysOnItsThread) {
  const auto thread_at_the_bottom = [] {
    std::thread::id id;
    nest(100, [&] { id = std::this_thread::get_id(); });
    return id == std::this_thread::get_id();
  };
  on_stock([&] { EXPECT_FALSE(thread_at_the_bottom()); });
  on_ours([&] { EXPECT_TRUE(thread_at_the_bottom()); });
}

TEST(Differences, AFailedBackwardLetsGoOfItsGradientsAtOnce) {
  // A node fails while another, with a gradient waiting for it, is ready.
  const auto gradient_survives = [] {
    auto late = make_body([](variable_list&&) -> variable_list { return {}; });
    auto fails = make_body([](variable_list&&) -> variable_list { throw std::runtime_error("x"); });
    late->set_sequence_nr(1);
    fails->set_sequence_nr(2);
    c10::weak_intrusive_ptr<c10::TensorImpl> watched(torch::ones({1}).getIntrusivePtr());
    auto root = make_body([&](variable_list&&) -> variable_list {
      auto gradient = torch::ones({1});
      watched = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
      return {std::move(gradient), torch::ones({1})};
    });
    root->set_sequence_nr(3);
    root->set_next_edges({Edge(late, 0), Edge(fails, 0)});
    EXPECT_THROW(run(root), std::runtime_error);
    return !watched.expired();
  };
  on_stock([&] { EXPECT_TRUE(gradient_survives()); });
  on_ours([&] { EXPECT_FALSE(gradient_survives()); });
}

TEST(Differences, AnErrorThatIsNoExceptionLeavesTheThreadAsItWas) {
  // Afterwards stock takes the thread for one that is inside a backward for ever; with us the next
  // backward is an outermost one again, and its final callbacks run.
  on_ours([] {
    auto fails = make_body([](variable_list&&) -> variable_list { throw 42; });
    bool called = false;
    auto queues = make_body([&](variable_list&&) -> variable_list {
      Engine::get_default_engine().queue_callback([&] { called = true; });
      throw 42;
    });
    EXPECT_THROW(run(fails), int);
    EXPECT_THROW(run(queues), int);
    EXPECT_FALSE(called);
    EXPECT_EQ(get_current_graph_task_id(), -1);
    EXPECT_TRUE(GradMode::is_enabled());
    run(make_body([&](variable_list&&) -> variable_list {
      Engine::get_default_engine().queue_callback([&] { called = true; });
      return {};
    }));
    EXPECT_TRUE(called);
  });
}

TEST(Differences, WarningsBeforeAnErrorThatIsNoExceptionAreNotLost) {
  struct Counter : c10::WarningHandler {
    void process(const c10::Warning&) override { ++count; }
    int count = 0;
  };
  const auto warnings_seen = [] {
    Counter counter;
    c10::WarningUtils::WarningHandlerGuard guard(&counter);
    auto node = make_body([](variable_list&&) -> variable_list {
      TORCH_WARN("before the error");
      throw 42;
    });
    EXPECT_THROW(run(node), int);
    return counter.count;
  };
  on_stock([&] { EXPECT_EQ(warnings_seen(), 0); });
  on_ours([&] { EXPECT_EQ(warnings_seen(), 1); });
  on_ours([&] { EXPECT_EQ(warnings_seen(), 1); }, {.frame = overdrive::engine::Frame::kAlways});
}

TEST(Differences, NestedBackwardsNumberTheirTasksFromTwoToThe30) {
  int inner = 0;
  const auto ids = [&] { nest(1, [&] { inner = get_current_graph_task_id(); }); };
  on_stock(ids);
  EXPECT_LT(inner, 1 << 30);
  on_ours(ids);
  EXPECT_GE(inner, 1 << 30);
}

TEST(Differences, ABackwardThatBeginsNowhereIsAnError) {
  on_ours([] {  // stock reads a null pointer
    EXPECT_THROW(Engine::get_default_engine().execute({Edge()}, {torch::ones({1})}, false, false, true),
                 c10::Error);
  });
}

TEST(Differences, AnOutputWithoutANodeIsAnError) {
  on_ours([] {  // stock reads a null pointer
    auto root = make_body([](variable_list&&) -> variable_list { return {}; });
    EXPECT_THROW(Engine::get_default_engine().execute({Edge(root, 0)}, {torch::ones({1})}, false, false, false,
                                                      {Edge()}),
                 c10::Error);
    run(root);  // nothing is left of the refused call
  });
}

TEST(Differences, AnEdgeToAnInputThatIsNotThereIsAnError) {
  on_ours([] {  // stock reads past the end of a list
    auto target = make_body([](variable_list&&) -> variable_list { return {}; });
    auto root = make_body([](variable_list&&) -> variable_list { return {torch::ones({1})}; });
    root->add_next_edge(Edge(target, 1));
    try {
      run(root);
      FAIL() << "nothing was thrown";
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.msg(),
                "edge 0 leads to input 1 of Body, which has 1 inputs. Was add_input_metadata() forgotten?");
    }
  });
}

TEST(Differences, SeveralRootsWithAnUndefinedGradientAreAnError) {
  on_ours([] {  // stock ends the process
    auto x = torch::ones({2}, torch::requires_grad());
    const auto edge = impl::gradient_edge(x * 2);
    EXPECT_THROW(Engine::get_default_engine().execute({edge, edge}, {torch::ones({2}), {}}, false, false, true),
                 c10::Error);
  });
}

TEST(Differences, NoPlaceInAPrunedBackwardIsValidForCheckpoints) {
  const auto is_valid_in_the_hook_of_a_captured_leaf = [] {
    auto x = torch::ones({2}, torch::requires_grad());
    bool valid = false;
    x.register_hook([&](const torch::Tensor&) { valid = Engine::get_default_engine().is_checkpoint_valid(); });
    grad({(x * 2).sum()}, {x});
    return valid;
  };
  on_stock([&] { EXPECT_TRUE(is_valid_in_the_hook_of_a_captured_leaf()); });
  on_ours([&] { EXPECT_FALSE(is_valid_in_the_hook_of_a_captured_leaf()); });
}

TEST(Differences, WithDeepThreadsADeepNestMovesToThreadsThatEndWithIt) {
  overdrive::Options threads;
  threads.deep = overdrive::engine::Deep::kThreads;
  overdrive::reset_stats();
  on_ours(
      [] {
        std::thread::id bottom;
        nest(20000, [&] { bottom = std::this_thread::get_id(); });
        EXPECT_NE(bottom, std::this_thread::get_id());
      },
      threads);
  EXPECT_GT(overdrive::stats().threads, 0u);
  EXPECT_EQ(overdrive::stats().fresh_stacks, 0u);
}

// `backward` puts down which task its code saw: stock's, and of ours the one only that Frame::kAlways makes.
void expect_no_task_unless_asked(const std::function<void()>& backward, const int& task_id) {
  on_stock(backward);
  EXPECT_GE(task_id, 0);
  on_ours(backward);
  EXPECT_EQ(task_id, -1);
  overdrive::Options always;
  always.frame = overdrive::engine::Frame::kAlways;
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
  const auto is_lent_one = [&] {
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
  on_stock([&] { EXPECT_TRUE(is_lent_one()); });
  EXPECT_EQ(received, 3);
  on_ours([&] { EXPECT_FALSE(is_lent_one()); });
  EXPECT_EQ(received, 3);
}

int task_of_the_kernel = 0;

torch::Tensor own_cosh(const torch::Tensor& x) {
  task_of_the_kernel = get_current_graph_task_id();
  return (x.exp() + x.neg().exp()) / 2;
}

TEST(Differences, AKernelInThePlaceOfLibTorchsOwnSeesNoTaskUnlessAsked) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("cosh", &own_cosh);
  const auto backward_of_sinh = [] {
    auto x = torch::ones({2}, torch::requires_grad());
    task_of_the_kernel = -2;
    x.sinh().backward(torch::ones({2}));  // the derivative calls cosh()
  };
  expect_no_task_unless_asked(backward_of_sinh, task_of_the_kernel);
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
  on.graph_views = overdrive::engine::GraphViews::kOn;
  on_ours(count_nodes, on);
  EXPECT_EQ(listed, 21u);
}

}  // namespace
