// profile() and memory_timeline(): their sums against counts that are known, and the width of their print.
#include "inspect/inspect.h"

#include "checkpoint/checkpoint.h"
#include "hooks/hooks.h"
#include "test/support/engines.h"
#include "test/support/error_of.h"
#include "test/support/graph.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <sstream>

namespace {

using namespace overdrive;
using torch::Tensor;

class Costs : public testing::Test {
 protected:
  const ScopedInstall engine_;
  const Tensor x_ = torch::ones({64, 64}, torch::requires_grad());  // 16 KiB
};

template <typename Printed>
void expect_narrow(const Printed& printed) {
  std::ostringstream out;
  out << printed;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60u) << line;
}

// First, because a process in which saved-tensor hooks were used runs none.
TEST_F(Costs, KeepNativeNodesRunning) {
  const auto step = [&] { x_.exp().sum().backward(); };
  const auto own_nodes_of = [](const std::function<void()>& run) {
    reset_stats();
    run();
    uint64_t own = 0;
    for (const auto& [type, count] : stats().own_nodes) own += count;
    return own;
  };
  EXPECT_EQ(own_nodes_of(step), 2u);
  EXPECT_EQ(own_nodes_of([&] { profile(step); }), 2u);
  EXPECT_EQ(own_nodes_of([&] { memory_timeline(step); }), 2u);
}

TEST_F(Costs, AreSummedByTypeOfNode) {
  const Profile cost = profile([&] { (x_.exp() * x_.exp()).sum().backward(); });
  EXPECT_EQ(cost.backwards, 1u);
  EXPECT_EQ(cost.nodes, 5u);
  const auto exp = std::find_if(cost.types.begin(), cost.types.end(),
                                [](const Profile::Type& type) { return type.name == "ExpBackward0"; });
  ASSERT_NE(exp, cost.types.end());
  EXPECT_EQ(exp->count, 2u);
  EXPECT_EQ(exp->bytes, 2 * 16384);
  EXPECT_GT(exp->own_nodes, 0u);
  double own = 0;
  for (const Profile::Type& type : cost.types) own += type.own_seconds;
  EXPECT_NEAR(own + cost.engine_seconds, cost.backward_seconds, 0.05 * cost.backward_seconds + 1e-6);
  EXPECT_LE(cost.backward_seconds, cost.seconds);
  EXPECT_EQ(cost.dearest.size(), 5u);
  expect_narrow(cost);
}

TEST_F(Costs, CountANestedBackwardOnceInOwnTime) {
  const auto outer = test::make_node("outer", {}, [&](torch::autograd::variable_list&&) {
    const at::AutoGradMode grad(true);
    x_.exp().sum().backward();
    return torch::autograd::variable_list{};
  });
  const Profile cost = profile([&] { test::run({.roots = {test::edge(outer)}}); });
  EXPECT_EQ(cost.backwards, 2u);
  const auto type = std::find_if(cost.types.begin(), cost.types.end(),
                                 [](const Profile::Type& one) { return one.name == "outer"; });
  ASSERT_NE(type, cost.types.end());
  EXPECT_LT(type->own_seconds, type->total_seconds);
}

TEST_F(Costs, CountMemoryForAsLongAsItLives) {
  const MemoryTimeline memory = memory_timeline([] {
    for (int i = 0; i < 3; ++i) at::zeros({64, 64});  // 16 KiB, one after the other
  });
  EXPECT_EQ(memory.peak_bytes, 16384);
}

TEST_F(Costs, ShowThePeakOfAStepAndItsOwners) {
  Tensor kept;
  const MemoryTimeline memory = memory_timeline([&] {
    const Tensor y = x_.exp();  // 16 KiB, saved
    kept = y.sin();             // 16 KiB
  });
  EXPECT_EQ(memory.peak_bytes, 2 * 16384);
  EXPECT_EQ(memory.peak_at, "aten::sin");
  ASSERT_EQ(memory.owners.size(), 2u);
  for (const auto& owner : memory.owners) {
    EXPECT_EQ(owner.kind, MemoryKind::kActivations);
    EXPECT_EQ(owner.bytes, 16384);
    EXPECT_EQ(owner.tensors, 1u);
  }
  expect_narrow(memory);
}

TEST_F(Costs, TellGradientsFromActivations) {
  const MemoryTimeline memory = memory_timeline([&] { x_.exp().sin().sum().backward(); });
  EXPECT_GE(memory.peak_bytes, 3 * 16384);
  const auto gradients = std::find_if(memory.owners.begin(), memory.owners.end(),
                                      [](const auto& owner) { return owner.kind == MemoryKind::kGradients; });
  ASSERT_NE(gradients, memory.owners.end());
  int64_t all = 0;
  for (const auto& owner : memory.owners) all += owner.bytes;
  EXPECT_EQ(all, memory.peak_bytes);
  int64_t highest = 0;
  for (const auto& point : memory.points) highest = std::max(highest, point.all());
  EXPECT_EQ(highest, memory.peak_bytes);
  expect_narrow(memory);
}

TEST_F(Costs, TellSavedCopies) {
  Tensor loss;
  const MemoryTimeline memory = memory_timeline([&] {
    const hooks::ScopedHooks scope(hooks::quantise({.min_bytes = 0}));
    loss = x_.exp().sum();
  });
  EXPECT_TRUE(std::any_of(memory.owners.begin(), memory.owners.end(), [](const auto& owner) {
    return owner.kind == MemoryKind::kSavedCopies && owner.name == "aten::exp" && owner.bytes > 4096;
  }));
}

// {x} -- Sin -- Sin -- ... -- Sin --> {sum}, sixteen of them; the peak is what the graph keeps.
TEST_F(Costs, ShowWhatPackingAndACheckpointGive) {
  const auto sines = [](Tensor value) {
    for (int i = 0; i < 16; ++i) value = value.sin();
    return value;
  };
  const auto peak_of = [&](const std::function<Tensor()>& forward) {
    x_.mutable_grad() = Tensor();
    return memory_timeline([&] { forward().sum().backward(); }).peak_bytes;
  };
  const int64_t plain = peak_of([&] { return sines(x_); });
  const int64_t packed = peak_of([&] {
    const hooks::ScopedHooks scope(hooks::quantise({.min_bytes = 0}));
    return sines(x_);
  });
  const int64_t halves = peak_of([&] {
    Tensor value = x_;
    for (int half = 0; half < 2; ++half) {
      value = checkpointed(
          [](Tensor inner) {
            for (int i = 0; i < 8; ++i) inner = inner.sin();
            return inner;
          },
          value);
    }
    return value;
  });
  EXPECT_GE(plain, 15 * 16384);
  EXPECT_LT(packed, plain / 2);
  EXPECT_LT(halves, plain * 3 / 4);
}

TEST_F(Costs, OfMemoryAreNumbersAndOnePage) {
  const MemoryTimeline memory = memory_timeline([&] { x_.exp().sin().sum().backward(); });
  const nlohmann::json numbers = nlohmann::json::parse(to_json(memory));
  EXPECT_EQ(numbers["peak_bytes"], memory.peak_bytes);
  EXPECT_EQ(numbers["points"].size(), memory.points.size());
  EXPECT_EQ(numbers["points"][0].size(), 1 + inspect::kMemoryKinds);
  EXPECT_EQ(numbers["owners"][0]["name"], memory.owners[0].name);
  EXPECT_THAT(to_html(memory, "a </script> name"), testing::HasSubstr("a \\u003c/script> name"));
}

TEST_F(Costs, AreMeasuredOneAtATime) {
  EXPECT_THAT(test::error_of([&] { profile([&] { memory_timeline([] {}); }); }),
              testing::HasSubstr("another is under way"));
  EXPECT_EQ(profile([] {}).nodes, 0u);
}

}  // namespace
