// What a profiler sees: the same ranges as stock, nested alike, and one enclosing pair
// for overdrive::backward around each outermost backward of ours: the host's
// "autograd::engine::evaluate_function: overdrive::backward" and the frame node in it.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/gate.h"
#include "test/support/hooks.h"
#include "test/support/record_observer.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Profiler);

constexpr auto kEnclosing = "overdrive::backward";

// Sequence numbers and thread ids go on from test to test: counted from the first seen.
std::string relative(const std::vector<std::string>& ranges) {
  std::map<std::string, int> known[2];
  std::string text;
  for (auto range : ranges) {
    const char* labels[] = {"seq=", "forward_thread="};
    for (int i = 0; i < 2; ++i) {
      const auto at = range.find(labels[i]) + std::string(labels[i]).size();
      const auto number = range.substr(at, range.find(' ', at) - at);
      if (number == "-1" || number == "0" || number.size() > 15) continue;  // none, and AccumulateGrad's
      const auto it = known[i].try_emplace(number, static_cast<int>(known[i].size())).first;
      range.replace(at, number.size(), "#" + std::to_string(it->second));
    }
    text += range + "\n";
  }
  return text;
}

void train_once(const at::Tensor& x) {
  auto y = torch::relu(x.matmul(x) * 2) + x;
  y.sum().backward();
}

template <typename E>
std::string ranges_of(const std::function<void()>& scenario, bool inputs) {
  return on<E>([&] {
    RecordObserver observer(RecordObserver::Scope::kAll, inputs);
    scenario();
    if (E::kOverdrive) {
      EXPECT_GE(observer.count(kEnclosing), 1);
    } else {
      EXPECT_EQ(observer.count(kEnclosing), 0);
    }
    return relative(observer.ranges(kEnclosing));
  });
}

TYPED_TEST(Profiler, SeesTheSameRangesNestedAlike) {
  for (const bool inputs : {false, true}) {
    const auto scenario = [] {
      auto x = torch::ones({2, 2}, torch::requires_grad());
      train_once(x);
      train_once(x);
    };
    const auto ranges = ranges_of<TypeParam>(scenario, inputs);
    EXPECT_THAT(ranges, testing::HasSubstr("autograd::engine::evaluate_function: ReluBackward0"));
    EXPECT_EQ(ranges, ranges_of<StockEngine>(scenario, inputs));
  }
}

TYPED_TEST(Profiler, SeesHooksCallbacksAndCustomNodesAlike) {
  const auto scenario = [] {
    auto x = leaf();
    auto node = make_node("node", {accumulator(x)}, [](variable_list&& in) {
      Engine::get_default_engine().queue_callback([] { torch::ones({1}) + 1; });
      return variable_list{in[0] * 2};
    });
    add_pre_hook(node, [](const variable_list& grads) { return variable_list{grads[0] + 1}; });
    add_post_hook(node, [](const variable_list& outputs, const variable_list&) {
      return variable_list{outputs[0].sin()};
    });
    add_tensor_hook(x, [](const at::Tensor& grad) { return grad.cos(); });
    run({.roots = {edge(node)}});
  };
  EXPECT_EQ(ranges_of<TypeParam>(scenario, true), ranges_of<StockEngine>(scenario, true));
}

TYPED_TEST(Profiler, SeesPrunedRunsAlike) {
  const auto scenario = [] {
    auto x = leaf(2), y = leaf(3);
    auto a = x * y;
    auto b = a.sin() * y;
    torch::autograd::grad({b}, {a, x}, {}, true);
    torch::autograd::grad({b}, {y}, {}, true, true);
    b.backward({}, false, false, {{y}});
  };
  EXPECT_EQ(ranges_of<TypeParam>(scenario, false), ranges_of<StockEngine>(scenario, false));
}

TYPED_TEST(Profiler, SeesFailedRunsAlike) {
  const auto scenario = [] {
    auto x = leaf();
    auto bad = make_node("bad", {accumulator(x)},
                         [](variable_list&&) -> variable_list { throw std::runtime_error("no"); });
    EXPECT_EQ(message_of([&] { run({.roots = {edge(make_node("top", {edge(bad)}))}}); }).message, "no");
  };
  EXPECT_EQ(ranges_of<TypeParam>(scenario, false), ranges_of<StockEngine>(scenario, false));
}

TYPED_TEST(Profiler, OneEnclosingPairForEachOutermostBackward) {
  RecordObserver observer(RecordObserver::Scope::kBackwardOnly);
  auto x = leaf();
  auto inner = make_node("inner", {accumulator(x)});
  auto outer = make_node("outer", {accumulator(x)}, [&](variable_list&& in) {
    run({.roots = {edge(inner)}, .keep_graph = true});
    return in;
  });
  for (int i = 0; i < 3; ++i) run({.roots = {edge(outer)}, .keep_graph = true});
  EXPECT_EQ(observer.count(kEnclosing), TypeParam::kOverdrive ? 3 : 0);
  EXPECT_EQ(observer.count("inner"), 3);
  EXPECT_EQ(observer.ranges().front().find(kEnclosing) != std::string::npos, TypeParam::kOverdrive);
}

TYPED_TEST(Profiler, NamesTheThreadThatDidTheForward) {
  const auto scenario = [] {
    auto x = leaf(2);
    at::Tensor y, z;
    on_threads(1, [&](int) { y = x.sin(); });
    on_threads(1, [&](int) { z = y.cos(); });
    (z * x).backward();
  };
  EXPECT_EQ(ranges_of<TypeParam>(scenario, false), ranges_of<StockEngine>(scenario, false));
}

TYPED_TEST(Profiler, ACallbackAddedByAHookIsHonouredFromTheNextNodeOn) {
  const auto scenario = [] {
    std::optional<RecordObserver> observer;
    auto last = make_node("last", {});
    auto middle = make_node("middle", {edge(last)});
    auto first = make_node("first", {edge(middle)});
    add_pre_hook(first, [&](const variable_list& grads) {
      observer.emplace(RecordObserver::Scope::kBackwardOnly);
      return grads;
    });
    run({.roots = {edge(first)}});
    return std::to_string(observer->count("middle")) + std::to_string(observer->count("last"));
  };
  EXPECT_EQ(scenario(), "11");
}

std::vector<std::string> seen_by_callbacks;

template <char kWhose>
std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& range) {
  seen_by_callbacks.push_back(std::string{kWhose, ' '} + range.name());
  return nullptr;
}

TYPED_TEST(Profiler, ACallbackOfTheThreadThatAHookSwitchesOffOrExchangesIsBackForTheNextNode) {
  // They are among the modes that stock sets anew for every node.
  for (const bool exchange : {false, true}) {
    seen_by_callbacks.clear();
    auto last = make_node("last", {});
    auto first = make_node("first", {edge(last)});
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note<'a'>));
    add_pre_hook(first, [&](const variable_list& grads) {
      if (exchange) {
        at::removeCallback(handle);
        at::addThreadLocalCallback(at::RecordFunctionCallback(note<'b'>));
      } else {
        at::disableCallback(handle);
      }
      return grads;
    });
    run({.roots = {edge(first)}});
    at::clearThreadLocalCallbacks();
    EXPECT_THAT(seen_by_callbacks, testing::Contains("a last")) << (exchange ? "exchanged" : "switched off");
    EXPECT_THAT(seen_by_callbacks, testing::Not(testing::Contains("b last")));
  }
}

TYPED_TEST(Profiler, ACallbackRemovedByAHookSeesNothingMore) {
  std::optional<RecordObserver> observer;
  observer.emplace(RecordObserver::Scope::kBackwardOnly);
  auto last = make_node("last", {}, [&](variable_list&&) {
    observer.emplace(RecordObserver::Scope::kBackwardOnly);
    return variable_list{};
  });
  auto first = make_node("first", {edge(last)});
  add_post_hook(first, [&](const variable_list& outputs, const variable_list&) {
    EXPECT_EQ(observer->count("first"), 1);
    observer.reset();
    return outputs;
  });
  run({.roots = {edge(first)}});
  EXPECT_EQ(observer->count("last"), 0);
}

}  // namespace
}  // namespace overdrive::test
