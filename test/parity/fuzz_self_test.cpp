// The fuzzer itself: it finds nothing where there is nothing, and something where there is.
#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/fuzz.h"
#include "test/parity/fuzz/generator.h"
#include "test/parity/fuzz/print_cpp.h"
#include "test/parity/fuzz/shrink.h"
#include "test/support/pch.h"

namespace overdrive::fuzz {
namespace {

// An engine with one mistake, made of the base engine's own parts.
class CarelessEngine final : public Engine {
 public:
  enum Mistake { kKeepsGraph, kForgetsCreateGraph, kTurnsRootsAround };
  static CarelessEngine& get() {
    static auto* engine = new CarelessEngine;  // never destroyed, as every default engine
    return *engine;
  }
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph, bool create_graph,
                        bool accumulate_grad, const edge_list& outputs) override {
    Engine& base = Engine::get_base_engine();
    if (mistake != kTurnsRootsAround) {
      return base.execute(roots, inputs, keep_graph || mistake == kKeepsGraph,
                          create_graph && mistake != kForgetsCreateGraph, accumulate_grad, outputs);
    }
    return base.execute(edge_list(roots.rbegin(), roots.rend()), variable_list(inputs.rbegin(), inputs.rend()),
                        keep_graph, create_graph, accumulate_grad, outputs);
  }
  Mistake mistake = kKeepsGraph;

 private:
  ~CarelessEngine() override { stop(); }
};

Contender base_engine() {
  return {"base", [] { torch::autograd::set_default_engine_stub(&Engine::get_base_engine); }};
}
Contender careless(CarelessEngine::Mistake mistake) {
  return {"careless", [mistake] {
            CarelessEngine::get().mistake = mistake;
            torch::autograd::set_default_engine_stub([]() -> Engine& { return CarelessEngine::get(); });
          }};
}

TEST(FuzzSelf, FindsNoDifferenceBetweenStockAndItself) {
  prepare();
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    base_engine().enter();
    const auto difference = compare(generate(seed), base_engine(), base_engine());
    ASSERT_FALSE(difference) << "seed " << seed << "\n" << difference->left << "\n" << difference->right;
  }
}

TEST(FuzzSelf, MakesTheSameProgramFromTheSameSeed) {
  prepare();
  base_engine().enter();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(print_cpp(generate(seed), {}), print_cpp(generate(seed), {})) << "seed " << seed;
  }
}

class FuzzSelf : public testing::TestWithParam<CarelessEngine::Mistake> {};

TEST_P(FuzzSelf, FindsAMistakeAndMakesItSmall) {
  prepare();
  const Contender left = base_engine(), right = careless(GetParam());
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    left.enter();
    const Program program = generate(seed);
    if (!compare(program, left, right)) continue;
    const Program small =
        shrink(program, [&](const Program& p) { return compare(p, left, right).has_value(); });
    const auto difference = compare(small, left, right);
    ASSERT_TRUE(difference) << "what is left must still differ";
    EXPECT_LE(size_of(small.statements), 15) << print_cpp(small, *difference);
    EXPECT_NE(print_cpp(small, *difference).find("int main()"), std::string::npos);
    return;
  }
  FAIL() << "no program of 300 shows it";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, FuzzSelf,
                         testing::Values(CarelessEngine::kKeepsGraph, CarelessEngine::kForgetsCreateGraph,
                                         CarelessEngine::kTurnsRootsAround));

}  // namespace
}  // namespace overdrive::fuzz
