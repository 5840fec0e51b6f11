// Graph tasks that no execute() of ours has built, and the engine's other entries called
// from outside, as c10d's DistEngine calls them on whatever engine is the default.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/foreign_task.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

template <typename E>
class ForeignTasks : public test::EngineContract<E> {
 protected:
  void SetUp() override {
    EngineContract<E>::SetUp();
    this->allow_forwarding();  // they go to the base class, and are counted
  }
};
TYPED_TEST_SUITE(ForeignTasks, Engines, EngineNames);

TYPED_TEST(ForeignTasks, RunToTheirEnd) {
  auto x = leaf(3), y = leaf(2);
  auto loss = (x * y).sin() * x;
  const auto expected = torch::autograd::grad({loss}, {x, y}, {}, true);
  ForeignTask task(loss.grad_fn());
  const auto future = task.run(one());
  ASSERT_TRUE(future->completed());
  EXPECT_FALSE(future->hasError());
  EXPECT_TRUE(torch::equal(x.grad(), expected[0]));
  EXPECT_TRUE(torch::equal(y.grad(), expected[1]));
  EXPECT_EQ(stats().forwarded["foreign graph task"], TypeParam::kOverdrive ? 1u : 0u);
}

TYPED_TEST(ForeignTasks, ReturnTheirCapturesThroughTheFuture) {
  auto x = leaf(3);
  auto a = x * 2;
  auto b = a * 5;
  ForeignTask task(b.grad_fn());
  task.capture(a.grad_fn(), 0, 1);
  task.capture(accumulator(x).function, 0, 0);
  const auto captured = task.run(one())->value().toTensorVector();
  ASSERT_EQ(captured.size(), 2u);
  EXPECT_EQ(value_of(captured[0]), 10);
  EXPECT_EQ(value_of(captured[1]), 5);
}

TYPED_TEST(ForeignTasks, CallCaptureHooksInOrder) {
  auto x = leaf(3);
  auto a = x * 2;
  auto b = a * 5;
  add_tensor_hook(a, [](const at::Tensor& grad) { return grad * 100; });
  ForeignTask task(b.grad_fn());
  task.capture(a.grad_fn(), 0, 0, [](const at::Tensor& grad) { return grad + 1; });
  const auto captured = task.run(one())->value().toTensorVector();
  EXPECT_EQ(value_of(captured[0]), 6) << "the raw sum and the capture hook, not the tensor's hooks";
  EXPECT_EQ(value_of(x.grad()), 1000) << "captured and needed: it runs as well";
}

TYPED_TEST(ForeignTasks, TellTheirNodesWhoseTheyAre) {
  int id = 0;
  auto node = make_node("node", {}, [&](variable_list&&) {
    id = torch::autograd::get_current_graph_task_id();
    return variable_list{};
  });
  ForeignTask task(node);
  task.run(one());
  EXPECT_EQ(id, static_cast<int>(task.task().id_));
}

TYPED_TEST(ForeignTasks, RunTheirFinalCallbacks) {
  bool ran = false;
  auto node = make_node("node", {}, [&](variable_list&&) {
    Engine::get_default_engine().queue_callback([&] { ran = true; });
    return variable_list{};
  });
  ForeignTask task(node);
  task.run(one());
  EXPECT_TRUE(ran);
}

TYPED_TEST(ForeignTasks, PutTheirErrorIntoTheFuture) {
  for (const bool exit_on_error : {false, true}) {
    auto bad =
        make_node("bad", {}, [](variable_list&&) -> variable_list { throw std::out_of_range("foreign"); });
    ForeignTask task(make_node("top", {edge(bad)}), {.exit_on_error = exit_on_error});
    c10::intrusive_ptr<at::ivalue::Future> future;
    const auto thrown = message_of([&] { future = task.run(one()); });
    EXPECT_EQ(thrown, Caught{});
    ASSERT_TRUE(future && future->completed());
    EXPECT_TRUE(future->hasError());
    EXPECT_EQ(message_of([&] { future->value(); }), (Caught{"std::out_of_range", "foreign"}));
  }
}

TYPED_TEST(ForeignTasks, CanBeDrivenPieceByPiece) {
  auto x = leaf(3), y = leaf(2);
  auto loss = (x * y).exp() * x;
  const auto expected = torch::autograd::grad({loss}, {x, y}, {}, true);
  ForeignTask task(loss.grad_fn(), {.own_queue = true});
  {
    at::NoGradGuard no_grad;  // evaluate_function leaves the thread's state to its caller
    task.drive(one());
  }
  EXPECT_EQ(task.task().outstanding_tasks_, 0u);
  EXPECT_TRUE(torch::equal(x.grad(), expected[0]));
  EXPECT_TRUE(torch::equal(y.grad(), expected[1]));
}

TYPED_TEST(ForeignTasks, InsideABackwardAndABackwardInsideThem) {
  auto x = leaf(3), w = leaf(2);
  auto inner = x * 2;
  auto node = make_node("node", {accumulator(w)}, [&](variable_list&& in) {
    ForeignTask task(inner.grad_fn(), {.keep_graph = true});
    task.run(one());
    return in;
  });
  run({.roots = {edge(node)}, .keep_graph = true});
  EXPECT_EQ(value_of(x.grad()), 2);
  EXPECT_EQ(value_of(w.grad()), 1);

  ForeignTask outer(node);
  outer.run(one());  // its node runs another foreign task
  auto nesting = make_node("nesting", {}, [&](variable_list&&) {
    run({.roots = {edge(node)}, .keep_graph = true});
    return variable_list{};
  });
  ForeignTask(nesting).run(one());
  EXPECT_EQ(value_of(x.grad()), 6);
  EXPECT_EQ(value_of(w.grad()), 3);
}

TYPED_TEST(ForeignTasks, LeaveTheNextBackwardRight) {
  ForeignTask(make_node("node", {})).run(one());
  auto x = leaf(3);
  (x * x).backward();
  EXPECT_EQ(value_of(x.grad()), 6);
}

// Ours only: on stock these would end the device threads of the whole process.
class OverdriveEntries : public EngineContract<Overdrive> {};

TEST_F(OverdriveEntries, MayBeUsedInAnyOrderFromOutside) {
  auto& engine = Engine::get_default_engine();
  const auto expect_right = [] {
    auto x = leaf(3);
    (x * x).backward();
    EXPECT_EQ(value_of(x.grad()), 6);
  };
  engine.initialize_device_threads_pool();
  expect_right();
  engine.release_workers();
  expect_right();
  engine.stop();
  engine.stop();
  expect_right();
  EXPECT_TRUE(engine.is_checkpoint_valid());
  on<StockEngine>(expect_right);
}

}  // namespace
}  // namespace overdrive::test
