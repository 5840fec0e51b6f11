// Functions of the program around a backward: order, threads, errors.
#include "inspect/inspect.h"

#include "test/support/engines.h"
#include "test/support/error_of.h"
#include "test/support/graph.h"
#include "test/support/hooks.h"

#include <stdexcept>
#include <thread>

namespace {

using namespace overdrive;
using test::edge;
using test::make_node;
using torch::Tensor;
using torch::autograd::variable_list;
using Names = std::vector<std::string>;

class OnBackward : public testing::Test {
 protected:
  BackwardHooks told(const std::string& name = "") {
    return {.begin = [=, this](const auto& backward) { say(name, "begin ", backward.nodes); },
            .end = [=, this](const auto&, const auto& error) { say(name, error == nullptr ? "end" : "error"); },
            .before_node = [=, this](const auto& at,
                                     const auto& in) { say(name, "> ", at.node.name(), " ", in.size()); },
            .after_node = [=, this](const auto& at,
                                    const auto& out) { say(name, "< ", at.node.name(), " ", out.size()); }};
  }
  template <typename... Words>
  void say(const Words&... words) {
    events_.push_back(c10::str(words...));
  }

  const ScopedInstall engine_;
  Names events_;
};

TEST_F(OnBackward, CallsAroundEveryNodeInOrder) {
  // {x} --low--> --top-->
  const Tensor x = test::leaf();
  const auto low = make_node("low", {test::accumulator(x)});
  const auto top = make_node("top", {edge(low)});
  test::add_pre_hook(top, [this](const variable_list& in) {
    say("pre-hook");
    return in;
  });
  const auto scope = on_backward(told());
  test::run({.roots = {edge(top)}});
  EXPECT_EQ(events_,
            (Names{"begin 3", "> top 1", "pre-hook", "< top 1", "> low 1", "< low 1",
                   "> torch::autograd::AccumulateGrad 1", "< torch::autograd::AccumulateGrad 0", "end"}));
}

TEST_F(OnBackward, NestsSeveralScopes) {
  const Tensor x = test::leaf();
  const auto first = on_backward(told("1 "));
  const auto second = on_backward(told("2 "));
  test::run({.roots = {test::accumulator(x)}});
  const std::string leaf = "torch::autograd::AccumulateGrad";
  EXPECT_EQ(events_, (Names{"1 begin 1", "2 begin 1", "1 > " + leaf + " 1", "2 > " + leaf + " 1",
                            "2 < " + leaf + " 0", "1 < " + leaf + " 0", "2 end", "1 end"}));
}

TEST_F(OnBackward, EndsWithTheScope) {
  const Tensor x = test::leaf();
  { const auto scope = on_backward(told()); }
  test::run({.roots = {test::accumulator(x)}});
  EXPECT_THAT(events_, testing::IsEmpty());
}

TEST_F(OnBackward, TellsOfAnErrorAndGoesOnAfterwards) {
  const auto bad = make_node("bad", {}, [](variable_list&&) -> variable_list { throw std::range_error("no"); });
  const auto scope = on_backward(told());
  EXPECT_THROW(test::run({.roots = {edge(bad)}}), std::range_error);
  EXPECT_EQ(events_, (Names{"begin 1", "> bad 1", "error"}));
}

TEST_F(OnBackward, StopsTheBackwardWithTheErrorOfAFunction) {
  for (const std::string where : {"begin", "before", "after", "end"}) {
    const auto fail = [&](const std::string& here) {
      if (here == where) throw std::domain_error(where);
    };
    const Tensor x = test::leaf();
    const auto top = make_node("top", {test::accumulator(x)});
    {
      const auto watching = on_backward(told());
      const auto scope = on_backward({.begin = [&](const auto&) { fail("begin"); },
                                      .end = [&](const auto&, const auto&) { fail("end"); },
                                      .before_node = [&](const auto&, const auto&) { fail("before"); },
                                      .after_node = [&](const auto&, const auto&) { fail("after"); }});
      EXPECT_THROW(test::run({.roots = {edge(top)}}), std::domain_error) << where;
    }
    EXPECT_EQ(events_.back(), "error") << where;
    EXPECT_EQ(x.grad().defined(), where == "end");
    test::run({.roots = {edge(make_node("again", {test::accumulator(x)}))}});
    EXPECT_EQ(test::value_of(x.grad()), where == "end" ? 2 : 1);
  }
}

TEST_F(OnBackward, MayRunABackwardOfItsOwn) {
  const Tensor x = test::leaf(), y = test::leaf();
  const auto scope = on_backward({.after_node = [&](const NodeInfo& at, const variable_list&) {
    say(at.backward.depth, at.node.name());
    if (at.backward.depth == 0) test::run({.roots = {test::accumulator(y)}});
  }});
  test::run({.roots = {test::accumulator(x)}});
  EXPECT_EQ(events_, (Names{"0torch::autograd::AccumulateGrad", "1torch::autograd::AccumulateGrad"}));
  EXPECT_EQ(test::value_of(y.grad()), 1);
}

TEST_F(OnBackward, CanBeForOneThreadAlone) {
  BackwardHooks hooks = told();
  hooks.only_this_thread = true;
  const auto scope = on_backward(std::move(hooks));
  std::thread([] { test::run({.roots = {test::accumulator(test::leaf())}}); }).join();
  EXPECT_THAT(events_, testing::IsEmpty());
}

TEST_F(OnBackward, LeavesTheModesOfTheThreadToTheRun) {
  const Tensor x = torch::ones({2}, torch::requires_grad());
  const auto scope =
      on_backward({.before_node = [](const auto&, const auto&) { at::GradMode::set_enabled(true); }});
  (x * x).sum().backward();
  EXPECT_FALSE(x.grad().requires_grad());
}

}  // namespace
