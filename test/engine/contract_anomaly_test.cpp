// Anomaly mode: the NaN report, the forward traceback of the failing node and of no other,
// and the parents of nodes that a backward made.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/typed_node.h"

#include <regex>
#include <thread>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Anomaly);

using torch::autograd::DetectAnomalyGuard;

// Warnings that the backward prints, addresses and backtraces left out.
struct Collector : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    const auto text = warning.msg();
    timeline.add(text.substr(0, text.find('\n')));
  }
  Timeline timeline;
};

struct Report {
  Caught error;
  Events warnings;
  bool operator==(const Report&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Report& report) {
    out << report.error;
    for (const auto& warning : report.warnings) out << "\n  " << warning;
    return out;
  }
};

Report report_of(const std::function<void()>& call) {
  Collector collector;
  c10::WarningUtils::WarningHandlerGuard guard(&collector);
  auto error = message_of(call);
  // Where in LibTorch an assertion stands is no contract.
  error.message = error.message.substr(0, error.message.find('\n'));
  return {error, collector.timeline.events()};
}

at::Tensor nan_in_backward(const at::Tensor& x) { return (x * 0).sqrt() * 0; }  // 0 * 1/0

TYPED_TEST(Anomaly, ANaNIsReportedWithTheNodeThatMadeIt) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto x = leaf();
    auto y = nan_in_backward(x);
    return report_of([&] { y.backward(); });
  };
  EXPECT_EQ(scenario().error,
            (Caught{"c10::Error", "Function 'SqrtBackward0' returned nan values in its 0th output."}));
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

// Its name is asked for when its error is reported.
struct Nameless final : Node {
  bool failed = false;
  std::string name() const override {
    if (failed) throw std::underflow_error("no name");
    return "Nameless";
  }
  variable_list apply(variable_list&&) override {
    failed = true;
    throw std::logic_error("no gradient");
  }
};

TYPED_TEST(Anomaly, AnErrorOfTheReportReachesTheCallerAndTheNodeLosesNoOwner) {
  // On a thread of its own: stock takes it for one that is inside a backward for ever.
  std::thread([] {
    DetectAnomalyGuard anomaly;
    auto node = make_typed_node<Nameless>();
    node->add_input_metadata(one());
    const auto owners = node.use_count();
    EXPECT_EQ(message_of([&] { run({.roots = {Edge(node, 0)}}); }),
              (Caught{"std::underflow_error", "no name"}));
    run({.roots = {edge(make_node("next", {}))}});
    EXPECT_EQ(node.use_count(), owners);
  }).join();
}

TYPED_TEST(Anomaly, TheTracebackIsPrintedOnceAndForTheFailingNode) {
  DetectAnomalyGuard anomaly;
  auto x = leaf();
  auto y = nan_in_backward(x * 3) + 1;
  const auto report = report_of([&] { y.backward(); });
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], testing::StartsWith("Error detected in SqrtBackward0."));
}

TYPED_TEST(Anomaly, AnyOtherErrorGetsItsTracebackToo) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto x = leaf();
    auto bad = make_node("Bad", {accumulator(x)},
                         [](variable_list&&) -> variable_list { throw std::out_of_range("thrown"); });
    auto top = make_node("Top", {edge(bad)});
    return report_of([&] { run({.roots = {edge(top)}}); });
  };
  const auto report = scenario();
  EXPECT_EQ(report.error, (Caught{"std::out_of_range", "thrown"}));
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], testing::StartsWith("Error detected in Bad."));
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Anomaly, WithoutTheNaNCheckOnlyErrorsAreReported) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly(/*check_nan=*/false);
    auto x = leaf();
    return report_of([&] { nan_in_backward(x).backward(); });
  };
  EXPECT_EQ(scenario().error, Caught{});
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Anomaly, NaNsOfHooksAndUndefinedOutputsAreJudgedAsInStock) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto x = leaf(), y = leaf();
    auto post = make_node("Post", {accumulator(x), accumulator(y)}, [](variable_list&&) {
      return variable_list{at::Tensor(), one(1)};
    });
    add_post_hook(post, [](const variable_list& outputs, const variable_list&) {
      return variable_list{outputs[0], outputs[1] * std::nan("")};
    });
    return report_of([&] { run({.roots = {edge(post)}}); });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Anomaly, ACorrectGraphRunsAsWithoutIt) {
  DetectAnomalyGuard anomaly;
  auto x = leaf(3);
  (x * x * x).backward();
  EXPECT_EQ(value_of(x.grad()), 27);
}

TYPED_TEST(Anomaly, NodesMadeByABackwardKnowTheirParents) {
  // Double backward: the failing node was made by MulBackward or DivBackward of the first one.
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto x = torch::zeros({1}, torch::requires_grad());
    auto first = torch::autograd::grad({x.pow(3)}, {x}, {}, true, true)[0];
    auto bad = first.sqrt().sum();
    return report_of([&] { bad.backward(); });
  };
  const auto report = scenario();
  EXPECT_EQ(report.error.type, "c10::Error");
  ASSERT_GE(report.warnings.size(), 1u);
  EXPECT_EQ(report, on<StockEngine>(scenario));
}

TYPED_TEST(Anomaly, ParentsLinkThroughSeveralBackwards) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto x = torch::ones({1}, torch::requires_grad());
    auto first = torch::autograd::grad({x.pow(4)}, {x}, {}, true, true)[0];
    auto second = torch::autograd::grad({first}, {x}, {}, true, true)[0];
    auto bad = ((second - second) * x).sqrt().sum();
    return report_of([&] { bad.backward(); });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Anomaly, ANestedErrorIsReportedForTheInnerNodeFirst) {
  const auto scenario = [] {
    DetectAnomalyGuard anomaly;
    auto inner =
        make_node("Inner", {}, [](variable_list&&) -> variable_list { throw std::out_of_range("deep"); });
    auto outer = make_node("Outer", {}, [&](variable_list&&) {
      run({.roots = {edge(inner)}});
      return variable_list{};
    });
    return report_of([&] { run({.roots = {edge(outer)}}); });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

}  // namespace
}  // namespace overdrive::test
