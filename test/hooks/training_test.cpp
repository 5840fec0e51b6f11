// Training under each packer against plain training. Exact packers: bit for bit. Lossy ones: gradients within
// a bound, and the digits CNN as good within a point.
#include "examples/trainers/checkpoint_file.h"
#include "examples/trainers/trainer.h"
#include "test/hooks/hooks_fixture.h"
#include "test/support/child_process.h"

#include <cstdio>
#include <cstdlib>

namespace overdrive::hooks {
namespace {

using trainers::Meter;
using trainers::Trainer;

std::unique_ptr<Trainer> make_trainer(const std::string& name) {
  at::set_num_threads(1);
  return trainers::make_trainer(*trainers::find_trainers(name).at(0), {.seed = 1});
}

void train(Trainer& trainer, int steps, const HooksPtr& hooks) {
  Meter meter;
  for (int i = 0; i < steps; ++i) {
    const ScopedHooks scope(hooks);
    trainer.step(meter);
  }
}

struct ExactPacker {
  std::string name;
  HooksPtr (*make)();
};

class ExactTraining : public testing::TestWithParam<ExactPacker> {
  ScopedInstall installed_;
};

TEST_P(ExactTraining, EndsAtTheVeryParameters) {
  for (const char* name : {"digits_cnn", "transformer"}) {
    const auto plain = make_trainer(name);
    train(*plain, 3, nullptr);
    const auto hooked = make_trainer(name);
    train(*hooked, 3, GetParam().make());
    const auto expected = plain->parameters(), got = hooked->parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(same_bits(got[i], expected[i])) << name << ", " << i;
  }
}

HooksPtr copies() { return std::make_shared<CopyingHooks>(); }
HooksPtr spill() { return spill_to_disk({.folder = {}, .min_bytes = 0}); }
HooksPtr uncached() { return spill_to_disk({.folder = {}, .min_bytes = 0, .drop_cached = true}); }
HooksPtr made_again() {  // recomputes what it kept, by a copy
  return recompute([](const Tensor& t, const SaveInfo&) -> MakeAgain {
    return [kept = t.clone()] { return kept.clone(); };
  });
}
HooksPtr composed() { return compose(copies(), spill()); }
HooksPtr scheduled() { return schedulable(copies(), {.window_tensors = 20, .depth = 4}); }
HooksPtr scheduled_spill() { return schedulable(spill()); }
HooksPtr scheduled_uncached() { return schedulable(uncached(), {.window_tensors = 0}); }
HooksPtr large_only() { return min_bytes(4096, spill()); }

INSTANTIATE_TEST_SUITE_P(All, ExactTraining,
                         testing::Values(ExactPacker{"keep", keep}, ExactPacker{"copies", copies},
                                         ExactPacker{"spill", spill}, ExactPacker{"recompute", made_again},
                                         ExactPacker{"composed", composed}, ExactPacker{"filtered", large_only},
                                         ExactPacker{"scheduled", scheduled},
                                         ExactPacker{"scheduled_spill", scheduled_spill},
                                         ExactPacker{"scheduled_uncached", scheduled_uncached}),
                         [](const auto& packer) { return packer.param.name; });

class LossyTraining : public testing::Test {
 protected:
  // The largest difference of a gradient of the first step, relative to that gradient's largest element.
  static double worst_gradient(const HooksPtr& hooks) {
    const auto plain = make_trainer("digits_cnn"), hooked = make_trainer("digits_cnn");
    train(*plain, 1, nullptr);
    at::manual_seed(1);
    train(*hooked, 1, hooks);
    double worst = 0;
    const auto expected = plain->parameters(), got = hooked->parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor error = (got[i].grad() - expected[i].grad()).abs().max() / expected[i].grad().abs().max();
      worst = std::max(worst, error.item<double>());
    }
    return worst;
  }
  static double accuracy(const HooksPtr& hooks) {
    const auto trainer = make_trainer("digits_cnn");
    train(*trainer, 300, hooks);
    return trainer->evaluate();
  }
  ScopedInstall installed_;
};

std::string bits_of_a_step() {
  const auto trainer = make_trainer("digits_cnn");
  train(*trainer, 1, nullptr);
  const trainers::Digest digest = trainers::digest_of(*trainer);
  return "bits of a step: " + digest.parameters + " " + digest.gradients;
}

// Errors of hooks leave nothing behind, on this thread or another: a step gives the bits of a process that has
// never seen one. That process is this test, told to print them.
constexpr const char* kPrint = "PRINT_THE_BITS_OF_A_STEP";

TEST(HooksThatFail, LeaveTheNextStepsAlone) {
  const ScopedInstall installed;
  if (std::getenv(kPrint) != nullptr) {
    std::puts(bits_of_a_step().c_str());
    return;
  }
  const test::ChildResult fresh = test::run_child(
      {"/proc/self/exe", "--gtest_filter=HooksThatFail.LeaveTheNextStepsAlone"}, {{kPrint, "1"}});
  ASSERT_EQ(fresh.exit_status, 0) << fresh.out << fresh.err;
  const auto as_in_a_fresh_process = [&] { EXPECT_THAT(fresh.out, testing::HasSubstr(bits_of_a_step())); };
  const PackFunction keeps = [](const Tensor& t, const SaveInfo&) { return Packed{{t}, {}}; };
  const PackFunction fails = [](const Tensor&, const SaveInfo&) -> Packed {
    throw std::runtime_error("no room");
  };
  const auto gives = [](std::function<Tensor(const Tensor&)> what) -> UnpackFunction {
    return [what](Packed& packed, const UnpackInfo&) { return what(packed.tensors[0]); };
  };
  const std::vector<std::pair<HooksPtr, std::string>> broken{
      {make_hooks(fails, gives([](const Tensor& t) { return t; })), "no room"},
      {make_hooks(keeps, gives([](const Tensor&) -> Tensor { throw std::runtime_error("no disk"); })),
       "no disk"},
      {make_hooks(keeps, gives([](const Tensor&) { return Tensor(); })), "undefined"},
      {make_hooks(keeps, gives([](const Tensor&) {
                    return at::ones({3, 5, 7});
                  })),
       "[3, 5, 7]"},
      {make_hooks(keeps, gives([](const Tensor& t) { return t.to(at::kDouble); })), "double"},
      {make_hooks(keeps, gives([](const Tensor& t) { return t.to(at::kMeta); })), "meta"}};
  for (const auto& [hooks, says] : broken) {
    for (const HooksPtr& one : {hooks, schedulable(hooks, {.window_tensors = 0})}) {
      const auto trainer = make_trainer("digits_cnn");
      EXPECT_THAT(message_of([&] { train(*trainer, 1, one); }).message, testing::HasSubstr(says));
      as_in_a_fresh_process();
      std::thread(as_in_a_fresh_process).join();
    }
  }
}

TEST_F(LossyTraining, Int8ChangesGradientsLittle) {
  EXPECT_LT(worst_gradient(quantise()), 0.02);
  // By chance a small activation becomes zero, and the backward of ReLU asks for nothing else.
  EXPECT_LT(worst_gradient(quantise({.rounding = Rounding::kStochastic})), 0.25);
  EXPECT_LT(worst_gradient(quantise({.type = QuantisedType::kBFloat16})), 0.01);
  EXPECT_GT(worst_gradient(quantise()), 0) << "nothing was quantised";
}

TEST_F(LossyTraining, TheDigitsCnnIsAsGoodWithinAPoint) {
  const double plain = accuracy(nullptr);
  EXPECT_GT(plain, 0.9);
  EXPECT_NEAR(accuracy(quantise()), plain, 0.01);
}

}  // namespace
}  // namespace overdrive::hooks
