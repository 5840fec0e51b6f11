// The first error reaches the caller as itself; nothing runs after it; the next backward
// knows nothing of it.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/gate.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Errors);

struct OwnError : std::exception {
  explicit OwnError(int value) : code(value) {}
  const char* what() const noexcept override { return "own error"; }
  int code;
};

NodePtr throwing(std::function<void()> thrower) {
  return make_node("throwing", {}, [thrower = std::move(thrower)](variable_list&&) {
    thrower();
    return variable_list{};
  });
}

void expect_next_backward_right() {
  auto x = leaf(3);
  (x * x).backward();
  EXPECT_EQ(value_of(x.grad()), 6);
  on_threads(1, [](int) {
    auto y = leaf(4);
    (y * y).backward();
    EXPECT_EQ(value_of(y.grad()), 8);
  });
}

// Ours lets go of everything at once; stock with the thread's next backward.
template <typename E>
void after_failure() {
  if (!E::kOverdrive) forget_failed_run();
}

TYPED_TEST(Errors, KeepTheirOwnType) {
  try {
    run({.roots = {edge(throwing([] { throw OwnError(7); }))}});
    FAIL() << "nothing was thrown";
  } catch (const OwnError& error) {
    EXPECT_EQ(error.code, 7);
  }
  const std::vector<std::pair<std::function<void()>, Caught>> cases = {
      {[] { throw std::bad_alloc(); }, {"std::bad_alloc", "std::bad_alloc"}},
      {[] { throw std::out_of_range("far"); }, {"std::out_of_range", "far"}},
      {[] { TORCH_CHECK(false, "checked"); }, {"c10::Error", "checked"}},
      {[] { TORCH_CHECK_INDEX(false, "index"); }, {"c10::IndexError", "index"}},
      {[] { C10_THROW_ERROR(OutOfMemoryError, "memory"); }, {"c10::OutOfMemoryError", "memory"}},
      {[] { TORCH_CHECK_NOT_IMPLEMENTED(false, "not yet"); }, {"c10::NotImplementedError", "not yet"}},
  };
  for (const auto& [thrower, expected] : cases) {
    EXPECT_EQ(message_of([&] { run({.roots = {edge(throwing(thrower))}}); }), expected);
    expect_next_backward_right();
  }
}

TYPED_TEST(Errors, TheSameErrorObjectArrives) {
  const std::exception_ptr sent = std::make_exception_ptr(OwnError(1));
  std::exception_ptr received;
  try {
    run({.roots = {edge(throwing([&] { std::rethrow_exception(sent); }))}});
  } catch (...) {
    received = std::current_exception();
  }
  EXPECT_EQ(received, sent);
}

TYPED_TEST(Errors, OfEveryKindOfHookReachTheCaller) {
  const auto fail = [](const auto&...) -> variable_list { throw OwnError(2); };
  const auto fails = [](const NodePtr& node) { return message_of([&] { run({.roots = {edge(node)}}); }); };
  const Caught expected = message_of([] { throw OwnError(2); });
  auto node = make_node("tensor", {});
  add_tensor_pre_hook(node, fail);
  EXPECT_EQ(fails(node), expected);
  node = make_node("retains", {});
  add_retains_grad_hook(node, 0, fail);
  EXPECT_EQ(fails(node), expected);
  node = make_node("pre", {});
  add_pre_hook(node, fail);
  EXPECT_EQ(fails(node), expected);
  node = make_node("post", {});
  add_post_hook(node, fail);
  EXPECT_EQ(fails(node), expected);
  auto x = leaf();
  set_post_accumulate_hook(x, [](const at::Tensor&) { throw OwnError(2); });
  EXPECT_EQ(fails(make_node("leaf", {accumulator(x)})), expected);
  expect_next_backward_right();
}

TYPED_TEST(Errors, NoOtherNodeRunsAfterwards) {
  Timeline timeline;
  auto waiting = make_node("waiting", {});
  add_pre_hook(waiting, note_inputs(timeline, "ran"));
  auto bad = throwing([] { throw OwnError(3); });  // later in the forward, so earlier here
  auto root = make_node("root", {edge(waiting), edge(bad)});
  EXPECT_EQ(message_of([&] { run({.roots = {edge(root)}}); }).message, "own error");
  EXPECT_TRUE(timeline.events().empty());
  after_failure<TypeParam>();
}

TYPED_TEST(Errors, NoGradientIsHeldAfterwards) {
  auto x = leaf();
  auto waiting = make_node("waiting", {accumulator(x)});
  auto bad = throwing([] { throw OwnError(4); });
  auto root = make_node("root", {edge(waiting), edge(bad)}, [&](variable_list&&) {
    variable_list out{one(1), one(2)};
    this->watch(out[0]);
    this->watch(out[1]);
    return out;
  });
  EXPECT_EQ(message_of([&] { run({.roots = {edge(root)}, .keep_graph = true}); }).message, "own error");
  EXPECT_FALSE(x.grad().defined());
  after_failure<TypeParam>();
}

TYPED_TEST(Errors, OfPrunedRunsToo) {
  auto x = leaf();
  auto bad = make_node("bad", {accumulator(x)}, [](variable_list&&) -> variable_list { throw OwnError(5); });
  EXPECT_EQ(message_of([&] { torch::autograd::grad({output_of(bad)}, {x}); }).message, "own error");
  expect_next_backward_right();
}

TYPED_TEST(Errors, ANestedOneCanBeCaughtInsideTheNode) {
  auto x = leaf();
  auto node = make_node("node", {accumulator(x)}, [](variable_list&& in) {
    auto bad = throwing([] { throw OwnError(6); });
    EXPECT_EQ(message_of([&] { run({.roots = {edge(bad)}}); }).message, "own error");
    return in;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(value_of(x.grad()), 1);
}

TYPED_TEST(Errors, ANestedOneThatIsNotCaughtEndsTheOuterBackwardAsItself) {
  auto node = make_node("node", {}, [](variable_list&&) {
    run({.roots = {edge(throwing([] { throw OwnError(6); }))}});
    return variable_list{};
  });
  EXPECT_EQ(message_of([&] { run({.roots = {edge(node)}}); }), message_of([] { throw OwnError(6); }));
  expect_next_backward_right();
}

TYPED_TEST(Errors, OnAnotherThreadStayThere) {
  on_threads(2, [](int index) {
    if (index == 0) {
      EXPECT_EQ(message_of([] { run({.roots = {edge(throwing([] { throw OwnError(7); }))}}); }).message,
                "own error");
    } else {
      auto x = leaf(3);
      (x * x).backward();
      EXPECT_EQ(value_of(x.grad()), 6);
    }
  });
}

// Not typed: stock lets anything that is no std::exception fly through its loops without
// clean-up; the thread's graph task stays current and the next backward there is wrong.
class OverdriveErrors : public EngineContract<Overdrive> {};

TEST_F(OverdriveErrors, MayBeOfTypesThatAreNotStdException) {
  bool called = false;
  auto bad = throwing([] { throw 42; });
  auto root = make_node("root", {edge(bad)}, [&](variable_list&& in) {
    Engine::get_default_engine().queue_callback([&] { called = true; });
    return in;
  });
  try {
    run({.roots = {edge(root)}});
    FAIL() << "nothing was thrown";
  } catch (int value) {
    EXPECT_EQ(value, 42);
  }
  EXPECT_FALSE(called);
  EXPECT_EQ(torch::autograd::get_current_graph_task_id(), -1);
  expect_next_backward_right();
}

// An engine below ours, as Python's would be.
struct ListeningEngine final : Engine {
  ~ListeningEngine() override { stop(); }
  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& task, const NodePtr& node,
                           std::exception& error) override {
    heard.push_back(node->name() + ": " + error.what());
    Engine::thread_on_exception(task, node, error);
  }
  std::vector<std::string> heard;
};
ListeningEngine& listening_engine() {
  static auto* engine = new ListeningEngine;  // never destroyed, as engines should be
  return *engine;
}
Engine& listening_stub() { return listening_engine(); }

TEST_F(OverdriveErrors, AreToldToThePreviousEngine) {
  uninstall();
  torch::autograd::set_default_engine_stub(&listening_stub);
  install();
  auto bad = throwing([] { throw OwnError(8); });
  EXPECT_EQ(message_of([&] { run({.roots = {edge(make_node("top", {edge(bad)}))}}); }).message, "own error");
  EXPECT_EQ(listening_engine().heard, (std::vector<std::string>{"throwing: own error"}));
  EXPECT_TRUE(uninstall());
  EXPECT_EQ(&Engine::get_default_engine(), &listening_engine());
  torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
}

TEST_F(OverdriveErrors, OfNestedBackwardsMayBeSuchTypesToo) {
  auto node = make_node("node", {}, [](variable_list&&) {
    run({.roots = {edge(throwing([] { throw std::string("text"); }))}});
    return variable_list{};
  });
  EXPECT_THROW(run({.roots = {edge(node)}}), std::string);
  expect_next_backward_right();
}

TYPED_TEST(Errors, TheGradientsOfTheNodeThatFailedDieBeforeItsWarningsAreReplayed) {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Handler : c10::WarningHandler {
    void process(const c10::Warning&) override { seen.push_back(gradient.expired()); }
    Weak gradient{at::Tensor().getIntrusivePtr()};
    std::vector<bool> seen;
  } handler;
  c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto bad = make_node("bad", {}, [](variable_list&&) -> variable_list {
    TORCH_WARN("soon");
    throw std::runtime_error("failed");
  });
  add_pre_hook(bad, [](const variable_list& grads) { return grads; });
  auto top = make_node("top", {edge(bad)}, [&](variable_list&&) {
    variable_list out{one() * 2};
    handler.gradient = Weak(out[0].getIntrusivePtr());
    return out;
  });
  EXPECT_THROW(run({.roots = {edge(top)}}), std::runtime_error);
  EXPECT_EQ(handler.seen, std::vector{true});
}

}  // namespace
}  // namespace overdrive::test
