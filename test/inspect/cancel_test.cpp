// A backward that is stopped between two nodes, and the next one that is not.
#include "inspect/cancel.h"

#include "test/support/contract.h"

#include <future>
#include <thread>

namespace overdrive::test {
namespace {

class Stopping : public ContractBase {
 protected:
  void SetUp() override {
    ContractBase::SetUp();
    install();
  }
};

// {x} --> {first} --> {second} --> ...; `at` cancels when it runs.
struct Chain {
  explicit Chain(CancelToken token) : x(leaf()) {
    NodePtr cancels = make_node("cancels", {accumulator(x)}, [token](variable_list&& grads) mutable {
      token.cancel();
      return std::move(grads);
    });
    root = output_of(cancels);
    for (int i = 0; i < 3; ++i) root = root * 2;
  }
  at::Tensor x;
  at::Tensor root;
};

void expect_a_good_backward() {
  const at::Tensor x = leaf(3);
  (x * x).backward();
  EXPECT_EQ(value_of(x.grad()), 6);
}

TEST_F(Stopping, EndsBetweenTwoNodesAndListsTheLeavesThatAreDone) {
  // {a} --> {product} --> {sum} <-- {cancels} <-- {b}: the leaf of a later operator is done first
  CancelToken token;
  const at::Tensor a = leaf(), b = leaf();
  a.sin();  // takes number 0, so that the product is a later operator than the node that cancels
  const NodePtr cancels = make_node_at(0, "cancels", {accumulator(b)}, [&](variable_list&& grads) {
    token.cancel();
    return std::move(grads);
  });
  const at::Tensor root = output_of(cancels) + a * 3;
  {
    const StopScope scope(token);
    try {
      root.backward();
      FAIL() << "the backward ran to its end";
    } catch (const Cancelled& stopped) {
      EXPECT_EQ(stopped.total(), 5u);
      EXPECT_EQ(stopped.done(), 4u);
      ASSERT_EQ(stopped.accumulated().size(), 1u);
      EXPECT_TRUE(stopped.accumulated()[0].is_same(a));
      EXPECT_STREQ(stopped.what(), "A backward was stopped after 4 of 5 nodes: the token was cancelled.");
    }
  }
  EXPECT_EQ(value_of(a.grad()), 3);
  EXPECT_FALSE(b.grad().defined());
  expect_a_good_backward();
}

TEST_F(Stopping, ListsTheLeavesThatAreDoneAfterAnotherErrorToo) {
  // {a} --> {product} --> {sum} <-- {fails} <-- {b}
  const at::Tensor a = leaf(), b = leaf();
  a.sin();  // takes number 0, so that the product is a later operator than the node that fails
  const NodePtr fails = make_node_at(0, "fails", {accumulator(b)},
                                     [](variable_list&&) -> variable_list { throw std::out_of_range("mine"); });
  const at::Tensor root = output_of(fails) + a * 3;
  const StopScope scope{CancelToken()};
  EXPECT_TRUE(scope.accumulated().empty());
  EXPECT_THROW(root.backward(), std::out_of_range);
  ASSERT_EQ(scope.accumulated().size(), 1u);
  EXPECT_TRUE(scope.accumulated()[0].is_same(a));
  EXPECT_FALSE(scope.stopped().has_value());
  expect_a_good_backward();
  EXPECT_TRUE(scope.accumulated().empty());
}

// {leaf} --> {around}: its backward begins another one, in a scope that is cancelled.
NodePtr stops_inside(bool catches) {
  return make_node("around", {accumulator(leaf())}, [catches, inner = leaf() * 2](variable_list&& grads) {
    CancelToken token;
    token.cancel();
    const StopScope scope(token);
    if (catches) {
      EXPECT_THROW(inner.backward(), Cancelled);
      EXPECT_TRUE(scope.stopped().has_value());
    } else {
      inner.backward();
    }
    return std::move(grads);
  });
}

TEST_F(Stopping, IsToldByTheScopeUntilTheNextBackward) {
  const StopScope scope{CancelToken()};
  EXPECT_FALSE(scope.stopped().has_value());
  EXPECT_THROW(output_of(stops_inside(/*catches=*/false)).backward(), Cancelled);
  ASSERT_TRUE(scope.stopped().has_value());
  EXPECT_EQ(scope.stopped()->total(), 2u);
  EXPECT_STREQ(scope.stopped()->what(), "A backward was stopped after 0 of 2 nodes: the token was cancelled.");
  expect_a_good_backward();
  EXPECT_FALSE(scope.stopped().has_value());
}

TEST_F(Stopping, OfANestedBackwardThatTheNodeCatchesIsForgotten) {
  const StopScope scope{CancelToken()};
  output_of(stops_inside(/*catches=*/true)).backward();
  EXPECT_FALSE(scope.stopped().has_value());
}

TEST_F(Stopping, OfACancelledTokenBeginsNothing) {
  CancelToken token;
  token.cancel();
  const at::Tensor x = leaf();
  const at::Tensor y = x * 2;
  {
    const StopScope scope(token);
    EXPECT_THROW(y.backward(), Cancelled);
  }
  EXPECT_FALSE(x.grad().defined());
  y.backward();  // nothing of the graph was released
  EXPECT_EQ(value_of(x.grad()), 2);
}

TEST_F(Stopping, OfANestedBackwardStopsThoseAround) {
  CancelToken token;
  Chain inner(token);
  const at::Tensor early = leaf(), late = leaf();
  const NodePtr around = make_node_at(0, "around", {accumulator(late)}, [&](variable_list&& grads) {
    inner.root.backward();
    return std::move(grads);
  });
  const at::Tensor root = output_of(around) + early * 3;
  {
    const StopScope scope(token);
    try {
      root.backward();
      FAIL() << "the backward ran to its end";
    } catch (const Cancelled& stopped) {
      EXPECT_EQ(stopped.done(), 4u);  // of the inner one
      EXPECT_EQ(stopped.total(), 5u);
      ASSERT_EQ(stopped.accumulated().size(), 1u);
      EXPECT_TRUE(stopped.accumulated()[0].is_same(early));
    }
  }
  EXPECT_FALSE(inner.x.grad().defined());
  EXPECT_FALSE(late.grad().defined());
  expect_a_good_backward();
}

TEST_F(Stopping, AtADeadlineThatHasPassed) {
  const at::Tensor x = leaf();
  const StopScope scope(StopOptions{.deadline = std::chrono::nanoseconds(0)});
  EXPECT_THROW((x * 2).backward(), Cancelled);
}

TEST_F(Stopping, DoesNotHappenBeforeADeadline) {
  const at::Tensor x = leaf();
  const StopScope scope(StopOptions{.deadline = std::chrono::hours(1)});
  (x * 2).backward();
  EXPECT_EQ(value_of(x.grad()), 2);
}

TEST_F(Stopping, TellsTheProgress) {
  using Steps = std::vector<std::pair<size_t, size_t>>;
  Steps steps;
  const at::Tensor x = leaf();
  const StopScope scope(
      StopOptions{.progress = [&](size_t done, size_t total) { steps.emplace_back(done, total); }});
  (x * 2).sin().backward();
  EXPECT_EQ(steps, (Steps{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

TEST_F(Stopping, ByAnErrorOfTheProgressFunctionKeepsTheError) {
  const at::Tensor x = leaf();
  {
    const StopScope scope(StopOptions{.progress = [](size_t done, size_t) {
      if (done == 1) throw std::out_of_range("enough");
    }});
    EXPECT_THROW((x * 2).backward(), std::out_of_range);
  }
  expect_a_good_backward();
}

TEST_F(Stopping, CoversTheThreadOfTheScopeAlone) {
  CancelToken token;
  token.cancel();
  const StopScope scope(token);
  const at::Tensor x = leaf();
  std::thread([&] { (x * 2).backward(); }).join();
  EXPECT_EQ(value_of(x.grad()), 2);
}

TEST_F(Stopping, WorksFromAnotherThread) {
  CancelToken token;
  std::promise<void> inside, cancelled;
  const at::Tensor x = leaf();
  const NodePtr waits = make_node("waits", {accumulator(x)}, [&](variable_list&& grads) {
    inside.set_value();
    cancelled.get_future().wait();
    return std::move(grads);
  });
  std::thread other([&, token]() mutable {
    inside.get_future().wait();
    token.cancel();
    cancelled.set_value();
  });
  {
    const StopScope scope(token);
    EXPECT_THROW(output_of(waits).backward(), Cancelled);
  }
  other.join();
  EXPECT_FALSE(x.grad().defined());
  expect_a_good_backward();
}

}  // namespace
}  // namespace overdrive::test
