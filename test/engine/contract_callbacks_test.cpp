// Final callbacks: who may queue them, when they run, and when they must not.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Callbacks);

void at_end(std::function<void()> callback) {
  Engine::get_default_engine().queue_callback(std::move(callback));
}

TYPED_TEST(Callbacks, RunOnceAfterTheLastNodeInTheOrderQueued) {
  Timeline timeline;
  auto x = leaf();
  add_tensor_hook(x, [&](const at::Tensor& grad) {
    timeline.add("leaf");
    at_end([&] { timeline.add("from the hook, grad ", value_of(x.grad())); });
    return grad;
  });
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    timeline.add("node");
    at_end([&] { timeline.add("from the node"); });
    return in;
  });
  run({.roots = {edge(node)}, .keep_graph = true});
  EXPECT_EQ(timeline.events(), (Events{"node", "leaf", "from the node", "from the hook, grad 1"}));
}

TYPED_TEST(Callbacks, EveryKindOfHookMayQueueOne) {
  Timeline timeline;
  const auto queue = [&](const char* name) { at_end([&timeline, name] { timeline.add(name); }); };
  const auto pre = [&](const char* name) {
    return [&queue, name](const variable_list& grads) {
      queue(name);
      return grads;
    };
  };
  auto x = leaf();
  set_post_accumulate_hook(x, [&](const at::Tensor&) { queue("post accumulate"); });
  auto node = make_node("node", {accumulator(x)});
  add_tensor_pre_hook(node, pre("tensor"));
  add_retains_grad_hook(node, 0, pre("retains"));
  add_pre_hook(node, pre("pre"));
  add_post_hook(node, [&](const variable_list& outputs, const variable_list&) {
    queue("post");
    return outputs;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"tensor", "retains", "pre", "post", "post accumulate"}));
}

TYPED_TEST(Callbacks, ACallbackMayQueueAnother) {
  Timeline timeline;
  std::function<void(int)> chain = [&](int left) {
    timeline.add(left);
    if (left > 0) at_end([&, left] { chain(left - 1); });
  };
  auto node = make_node("node", {}, [&](variable_list&&) {
    at_end([&] { chain(3); });
    at_end([&] { timeline.add("second"); });
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"3", "second", "2", "1", "0"}));
}

TYPED_TEST(Callbacks, OneThatThrowsStopsTheRest) {
  Timeline timeline;
  auto node = make_node("node", {}, [&](variable_list&&) {
    at_end([&] { timeline.add("first"); });
    at_end([] { throw std::logic_error("from a callback"); });
    at_end([&] { timeline.add("third"); });
    return variable_list{};
  });
  EXPECT_EQ(message_of([&] { run({.roots = {edge(node)}, .keep_graph = true}); }),
            (Caught{"std::logic_error", "from a callback"}));
  EXPECT_EQ(timeline.events(), (Events{"first"}));
  // And it leaves nothing for the next backward.
  run({.roots = {edge(make_node("next", {}))}});
  EXPECT_EQ(timeline.events(), (Events{"first"}));
}

TYPED_TEST(Callbacks, WhatTheyHoldGoesWhenAllHaveRun) {
  // Also where the backward borrows the task of the one around it.
  for (const bool nested : {false, true}) {
    for (const bool throws : {false, true}) {
      Timeline timeline;
      const auto held_by = [&](const std::string& name) {
        return std::shared_ptr<void>(nullptr, [&timeline, name](void*) { timeline.add("gone: ", name); });
      };
      const auto inner = make_node("inner", {}, [&](variable_list&&) {
        at_end([&timeline, held = held_by("first")] { timeline.add("first"); });
        at_end([&timeline, throws, held = held_by("second")] {
          timeline.add("second");
          if (throws) throw std::logic_error("from a callback");
        });
        at_end([&timeline, held = held_by("third")] { timeline.add("third"); });
        return variable_list{};
      });
      const auto play = [&] { message_of([&] { run({.roots = {edge(inner)}}); }); };
      const auto outer = make_node("outer", {}, [&](variable_list&&) {
        play();
        return variable_list{};
      });
      nested ? (void)run({.roots = {edge(outer)}}) : play();
      Events expected{"first", "second", "third", "gone: first", "gone: second", "gone: third"};
      if (throws) expected.erase(expected.begin() + 2);
      EXPECT_EQ(timeline.events(), expected) << (nested ? "nested" : "outermost");
    }
  }
}

TYPED_TEST(Callbacks, OneQueuedInABackwardThatFailsNeverRuns) {
  bool ran = false;
  auto failing =
      make_node("failing", {}, [](variable_list&&) -> variable_list { throw std::runtime_error("no"); });
  auto node = make_node("node", {edge(failing)}, [&](variable_list&& in) {
    at_end([&] { ran = true; });
    return in;
  });
  EXPECT_EQ(message_of([&] { run({.roots = {edge(node)}}); }).message, "no");
  EXPECT_FALSE(ran);
  (leaf() * 2).backward();
  EXPECT_FALSE(ran);
}

TYPED_TEST(Callbacks, OutsideABackwardTheyAreRefused) {
  EXPECT_EQ(message_of([] { at_end([] {}); }),
            (Caught{"c10::Error", "Final callbacks can only be installed during backward pass."}));
}

TYPED_TEST(Callbacks, OneOfANestedBackwardRunsAtTheNestedEnd) {
  Timeline timeline;
  auto inner = make_node("inner", {}, [&](variable_list&&) {
    at_end([&] { timeline.add("inner callback"); });
    return variable_list{};
  });
  auto node = make_node("node", {}, [&](variable_list&&) {
    at_end([&] { timeline.add("outer callback"); });
    run({.roots = {edge(inner)}});
    timeline.add("back in the outer node");
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"inner callback", "back in the outer node", "outer callback"}));
}

TYPED_TEST(Callbacks, ACallbackMayRunABackward) {
  auto x = leaf(), y = leaf(2);
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    at_end([&] {
      at::AutoGradMode grad_mode(true);
      (y * y).backward();
    });
    return in;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(value_of(x.grad()), 1);
  EXPECT_EQ(value_of(y.grad()), 4);
}

TYPED_TEST(Callbacks, GradModeInACallbackIsWhatItIsInStock) {
  for (const bool create : {false, true}) {
    const auto scenario = [create] {
      bool seen = false;
      auto node = make_node("node", {}, [&](variable_list&&) {
        at_end([&] { seen = at::GradMode::is_enabled(); });
        return variable_list{};
      });
      run({.roots = {edge(node)}, .create_graph = create});
      return seen;
    };
    EXPECT_EQ(scenario(), on<StockEngine>(scenario)) << "create_graph " << create;
  }
}

TYPED_TEST(Callbacks, TheyRunBeforeGradReturnsItsResults) {
  auto x = leaf(3);
  bool ran = false;
  auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
    at_end([&] { ran = true; });
    return in;
  });
  EXPECT_EQ(value_of(torch::autograd::grad({output_of(node)}, {x})[0]), 1);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace overdrive::test
