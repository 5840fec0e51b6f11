// Random programs on Overdrive: the order of nodes that is told before a backward is the order in which they
// run.
#include "inspect/graph/predicted_order.h"
#include "inspect/on_backward.h"
#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/parity/fuzz/interpreter.h"
#include "test/support/pch.h"

namespace overdrive::fuzz {
namespace {

using Order = std::vector<const Node*>;

// Backwards whose order was compared to the end, those that ended early, and those with a nested backward or a
// hook that throws, which no prediction sees.
struct Counts {
  int compared = 0;
  int refused = 0;
  int changed = 0;
};

// What runs, beside what was told.
struct Looking {
  Looking(Order expected, std::vector<decltype(Edge::function)> leaves_of_roots)
      : kept(std::move(leaves_of_roots)),
        told(std::move(expected)),
        scope({.before_node =
                   [this](const inspect::NodeInfo& info, const variable_list&) {
                     if (info.backward.depth == 0) ran.push_back(&info.node);
                   },
               .only_this_thread = true}) {}
  // A leaf's own node dies with the last that names it, and the backward would have another.
  const std::vector<decltype(Edge::function)> kept;
  const Order told;
  Order ran;
  const inspect::BackwardScope scope;
};

// Null where the call is one that LibTorch refuses.
std::shared_ptr<Looking> look(const variable_list& roots, const variable_list& inputs, inspect::InputsOf call) {
  Order told;
  std::vector<decltype(Edge::function)> kept;
  try {
    for (const at::Tensor& root : roots) kept.push_back(torch::autograd::impl::gradient_edge(root).function);
    for (const inspect::OrderedNode& node : inspect::predicted_order(roots, inputs, call)) {
      if (!node.captured_only) told.push_back(node.node);
    }
  } catch (const c10::Error&) {
    return nullptr;
  }
  return std::make_shared<Looking>(std::move(told), std::move(kept));
}

Interpreter::Onlooker onlooker(uint64_t seed, Counts& counts) {
  return [seed, &counts](const variable_list& roots, const variable_list& inputs,
                         bool accumulates) -> std::function<void(uint32_t)> {
    const auto looking =
        look(roots, inputs, accumulates ? inspect::InputsOf::kBackward : inspect::InputsOf::kGrad);
    if (looking == nullptr) return nullptr;
    const bool several = roots.size() > 1;
    return [seed, &counts, looking, several](uint32_t features) {
      if ((features & (1U << kNested | 1U << kThrowing)) != 0) {
        ++counts.changed;
        return;
      }
      // LibTorch's node above several roots is of the call and not of the graph.
      if (several && !looking->ran.empty()) looking->ran.erase(looking->ran.begin());
      // LibTorch refuses some backwards at the beginning or in the middle; so far the order was the one told.
      Order told = looking->told;
      if (looking->ran.size() < told.size()) {
        told.resize(looking->ran.size());
        ++counts.refused;
      } else {
        ++counts.compared;
      }
      EXPECT_EQ(looking->ran, told) << "program " << seed;
    };
  };
}

TEST(FuzzOrder, IsToldBeforeTheBackward) {
  constexpr uint64_t kPrograms = 400;
  prepare();
  Counts counts;
  for (uint64_t seed = 1; seed <= kPrograms && !testing::Test::HasFailure(); ++seed) {
    stock().enter();
    const Program program = generate(seed);
    ours().enter();
    Interpreter run(program.seed, program.watch);
    run.set_onlooker(onlooker(seed, counts));
    for (const Statement& statement : program.statements) run.step(statement);
    run.finish();
  }
  stock().enter();
  EXPECT_GT(counts.compared, 300) << "refused " << counts.refused << ", changed " << counts.changed;
  EXPECT_LT(counts.refused, counts.compared);
}

}  // namespace
}  // namespace overdrive::fuzz
