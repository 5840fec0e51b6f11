// What user code leaves behind in its thread: the next node, the final callbacks and the
// caller must see what stock shows them, whatever was left by whom.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/thread_state.h"

#include <thread>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(ThreadState);

enum class By { kBody, kTensorHook, kPreHook, kPostHook, kRetainsGrad, kPostAccumulate, kUnpack, kCallback };
constexpr std::pair<By, const char*> kLeavers[] = {
    {By::kBody, "body"},          {By::kTensorHook, "tensor hook"}, {By::kPreHook, "pre-hook"},
    {By::kPostHook, "post-hook"}, {By::kRetainsGrad, "retains"},    {By::kPostAccumulate, "post-accumulate"},
    {By::kUnpack, "unpack hook"}, {By::kCallback, "callback"}};

NodePtr observer(Timeline& timeline, const at::Tensor& x) {
  return make_node("observer", {accumulator(x)}, [&timeline](variable_list&& in) {
    timeline.add("next node: ", thread_state());
    Engine::get_default_engine().queue_callback([&] { timeline.add("callback: ", thread_state()); });
    return in;
  });
}

void leave_by(By by, const NodePtr& node, const std::function<void()>& leave) {
  const auto pre = [leave](const variable_list& grads) {
    leave();
    return grads;
  };
  if (by == By::kTensorHook) add_tensor_pre_hook(node, pre);
  if (by == By::kRetainsGrad) add_retains_grad_hook(node, 0, pre);
  if (by == By::kPreHook) add_pre_hook(node, pre);
  if (by == By::kPostHook) {
    add_post_hook(node, [leave](const variable_list& outputs, const variable_list&) {
      leave();
      return outputs;
    });
  }
}

// {leaver} --> {product} --+--> {observer} --> {x}      the leaver, its hooks, or an unpack
//                          +--> {y}                     hook of the product leaves a change
void play(Timeline& timeline, By by, const std::function<void()>& leave, bool create_graph) {
  auto x = leaf(), y = leaf(2);
  auto below = output_of(observer(timeline, x));
  at::Tensor product;
  if (by == By::kUnpack) {
    with_unpack_hook(leave, [&] { product = below * y; });
  } else {
    product = below * y;
  }
  if (by == By::kPostAccumulate) set_post_accumulate_hook(y, [&](const at::Tensor&) { leave(); });
  auto node = make_node("leaver", {Edge(product.grad_fn(), 0)}, [&](variable_list&& in) {
    timeline.add("inside: ", thread_state());
    if (by == By::kBody) leave();
    if (by == By::kCallback) Engine::get_default_engine().queue_callback(leave);
    return in;
  });
  leave_by(by, node, leave);
  run({.roots = {edge(node)}, .create_graph = create_graph});
  timeline.add("caller: ", thread_state());
  timeline.add("x ", value_of(x.grad()), " ", x.grad().requires_grad(), " y ", value_of(y.grad()), " ",
               y.grad().requires_grad());
  x.mutable_grad().reset();  // with create_graph it owns its leaf's graph
  y.mutable_grad().reset();
}

// An op that a dispatch key forbids lists every kernel there is.
std::string first_line(const Caught& error) {
  return error.type + " " + error.message.substr(0, error.message.find('\n'));
}

// On a thread of its own: what stays changed ends with it.
std::string on_fresh_thread(By by, const std::function<void()>& leave, bool create_graph) {
  Timeline timeline;
  std::thread([&] {
    timeline.add(first_line(message_of([&] { play(timeline, by, leave, create_graph); })));
  }).join();
  return timeline.text();
}

void expect_as_stock(bool create_graph) {
  for (const auto& [by, by_name] : kLeavers) {
    for (const auto& leak : leaks()) {
      const auto scenario = [&, by = by] { return on_fresh_thread(by, leak.leave, create_graph); };
      EXPECT_EQ(scenario(), on<StockEngine>(scenario)) << by_name << " leaves " << leak.name << " changed";
    }
  }
}

TYPED_TEST(ThreadState, WhateverIsLeftChangedEveryoneSeesWhatStockShows) { expect_as_stock(false); }
TYPED_TEST(ThreadState, WithCreateGraphToo) { expect_as_stock(true); }

TYPED_TEST(ThreadState, TheNextNodeStartsClean) {
  for (const auto& leak : leaks()) {
    if (leak.name == "autocast cache") continue;  // stock does not put it back either
    std::string inside, next;
    std::thread([&] {
      auto last = make_node("next", {}, [&](variable_list&&) {
        next = thread_state();
        return variable_list{};
      });
      auto node = make_node("leaver", {edge(last)}, [&](variable_list&& in) {
        inside = thread_state();
        leak.leave();
        return in;
      });
      run({.roots = {edge(node)}});
    }).join();
    EXPECT_EQ(inside, next) << leak.name;
  }
}

TYPED_TEST(ThreadState, ALayerLeftOnTopOfTheCallersIsGoneForTheNextNode) {
  // Both layers are under the same dispatch keys, and in one object.
  for (const bool nested : {false, true}) {
    std::string before, next, after;
    std::thread([&] {
      auto last = make_node("next", {}, [&](variable_list&&) {
        next = thread_state();
        return variable_list{};
      });
      auto node = make_node("leaver", {edge(last)}, [&](variable_list&& in) {
        before = thread_state();
        leaks().back().leave();
        return in;
      });
      auto outer = make_node("outer", {}, [&](variable_list&&) {
        const FunctorchLayer layer(FunctorchLayer::Kind::kVmap);
        run({.roots = {edge(node)}, .grads = {one()}});
        after = thread_state();
        return variable_list{};
      });
      const FunctorchLayer layer(FunctorchLayer::Kind::kVmap);
      run({.roots = {edge(nested ? outer : node)}, .grads = {one()}});
      if (!nested) after = thread_state();
    }).join();
    EXPECT_EQ(next, before) << nested;
    EXPECT_EQ(after.substr(after.find(" layers=")),
              nested ? before.substr(before.find(" layers=")) : " layers=1 quiet=0");
  }
}

TYPED_TEST(ThreadState, AGradModeLeftOnBuildsNoGraphInALeaf) {
  // The silent one: AccumulateGrad in grad mode would make .grad ask for a gradient.
  auto x = leaf();
  auto node = make_node("leaver", {accumulator(x)}, [](variable_list&&) {
    at::GradMode::set_enabled(true);
    return variable_list{one(3).requires_grad_(true) * 1};
  });
  run({.roots = {edge(node)}});
  EXPECT_FALSE(x.grad().requires_grad());
}

TYPED_TEST(ThreadState, ANodeAndItsHooksRunInTheStateOfTheCaller) {
  const auto scenario = [](const std::function<void()>& enter) {
    std::string inside, after;
    const auto look = [&] { inside += thread_state() + '\n'; };
    std::thread([&] {
      auto node = make_node("node", {}, [&](variable_list&&) {
        look();
        return variable_list{};
      });
      for (const By by : {By::kTensorHook, By::kPreHook, By::kPostHook}) leave_by(by, node, look);
      const Backward call{.roots = {edge(node)}, .grads = {one()}};
      enter();
      const auto before = thread_state();
      const auto error = message_of([&] { run(call); });
      after = first_line(error) + (before == thread_state() ? " same" : " changed to " + thread_state());
    }).join();
    return inside + " | " + after;
  };
  for (const auto& leak : leaks()) {
    if (leak.name == "inference mode") continue;  // the flag alone, without its keys, is no state to run in
    const auto run_it = [&] { return scenario(leak.leave); };
    EXPECT_EQ(run_it(), on<StockEngine>(run_it)) << leak.name;
  }
}

TYPED_TEST(ThreadState, ThrowingLeavesTheCallerClean) {
  for (const auto& leak : leaks()) {
    const auto scenario = [&] {
      std::string text;
      std::thread([&] {
        auto node = make_node("leaver", {}, [&](variable_list&&) -> variable_list {
          leak.leave();
          throw std::runtime_error("after leaving");
        });
        try {
          run({.roots = {edge(node)}});
        } catch (const std::runtime_error&) {
        }
        text = thread_state();
      }).join();
      return text;
    };
    EXPECT_EQ(scenario(), on<StockEngine>(scenario)) << leak.name;
  }
}

struct WarningTimeline : c10::WarningHandler {
  void process(const c10::Warning& warning) override { timeline.add(warning.msg()); }
  Timeline timeline;
};

TYPED_TEST(ThreadState, WarningsOfNodesAreReplayedOnTheCallerAfterTheRun) {
  WarningTimeline collector;
  c10::WarningUtils::WarningHandlerGuard guard(&collector);
  auto node = make_node("node", {}, [&](variable_list&&) {
    TORCH_WARN("first");
    TORCH_WARN("second");
    collector.timeline.add("node ends");
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(collector.timeline.events(), (Events{"node ends", "first", "second"}));
}

TYPED_TEST(ThreadState, WarningsOfCallbacksAndOfFailedRunsGoWhereStockSendsThem) {
  const auto scenario = [](bool fail) {
    WarningTimeline collector;
    c10::WarningUtils::WarningHandlerGuard guard(&collector);
    auto node = make_node("node", {}, [&](variable_list&&) {
      TORCH_WARN("from the node");
      Engine::get_default_engine().queue_callback([&] {
        TORCH_WARN("from the callback");
        collector.timeline.add("callback ends");
      });
      if (fail) throw std::runtime_error("failed");
      return variable_list{};
    });
    try {
      run({.roots = {edge(node)}});
    } catch (const std::runtime_error&) {
      collector.timeline.add("caught");
    }
    return collector.timeline.text();
  };
  for (const bool fail : {false, true}) {
    EXPECT_EQ(scenario(fail), on<StockEngine>([&] { return scenario(fail); })) << "fail " << fail;
  }
}

}  // namespace
}  // namespace overdrive::test
