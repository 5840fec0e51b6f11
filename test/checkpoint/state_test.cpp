// What a recomputation finds around it: random numbers, flags, modes.
#include "hooks/hooks.h"
#include "test/checkpoint/checkpoint_fixture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

#include <thread>

namespace overdrive::checkpoint {
namespace {

Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

OVERDRIVE_BOTH_FORMS(State);

TEST_P(State, DropoutHasTheSameMaskAndTheGeneratorGoesOn) {
  const auto f = [&](const Tensor& t) { return at::dropout(block(t), 0.5, true) * t; };
  const auto run = [&](bool plain) {
    torch::manual_seed(11);
    Tensor y = plain ? f(x) : checkpoint(options(), f, x);
    return y * at::rand({4, 8});  // draws after the region
  };
  expect_same([&] { return run(true); }, [&] { return run(false); });
}

TEST_P(State, TheGeneratorIsLeftAsItWasByTheRecomputation) {
  const Tensor y = checkpoint(
      options(), [&](const Tensor& t) { return at::dropout(block(t), 0.5, true); }, x);
  const Tensor before = generator_state();
  y.sum().backward();
  EXPECT_TRUE(at::equal(generator_state(), before));
}

TEST_P(State, NothingIsPutBackWhereNothingWasDrawn) {
  const auto f = [&](const Tensor& t) {
    if (is_recomputing()) at::rand({1});
    return block(t);
  };
  const Tensor y = checkpoint(options(), f, x), before = generator_state();
  y.sum().backward();
  EXPECT_FALSE(at::equal(generator_state(), before));
}

TEST_P(State, WithoutPreserveRngTheRecomputationDrawsAnew) {
  Options other = options();
  other.preserve_rng = false;
  const Tensor y = checkpoint(
      other, [&](const Tensor& t) { return at::dropout(block(t), 0.5, true) * t; }, x);
  const Tensor before = generator_state();
  y.sum().backward();
  EXPECT_FALSE(at::equal(generator_state(), before));
}

TEST_P(State, AnErrorInTheRecomputationPutsEverythingBack) {
  int runs = 0;
  const Tensor y = checkpoint(
      options(),
      [&](const Tensor& t) {
        const Tensor dropped = at::dropout(block(t), 0.5, true);
        TORCH_CHECK(++runs == 1, "the second run fails");
        return dropped * t;
      },
      x);
  const Tensor before = generator_state();
  EXPECT_THAT(error_of([&] { y.sum().backward(); }), HasSubstr("the second run fails"));
  EXPECT_TRUE(at::equal(generator_state(), before));
  EXPECT_FALSE(is_recomputing());
}

TEST_P(State, AnErrorInTheForwardTakesTheFlagDown) {
  EXPECT_THAT(error_of([&] {
                checkpoint(
                    options(),
                    [&](const Tensor& t) {
                      TORCH_CHECK(!is_checkpointing(), "inside");
                      return t;
                    },
                    x);
              }),
              HasSubstr("inside"));
  EXPECT_FALSE(is_checkpointing());
}

TEST_P(State, FlagsAreUpOnlyInside) {
  Timeline timeline;
  const auto f = [&](const Tensor& t) {
    timeline.add(is_checkpointing() ? "checkpointing" : "", is_recomputing() ? "recomputing" : "");
    return block(t);
  };
  const Tensor y = checkpoint(options(), f, x);
  EXPECT_FALSE(is_checkpointing());
  std::thread([&] {
    EXPECT_FALSE(is_recomputing());
    y.sum().backward();
    EXPECT_FALSE(is_recomputing());
  }).join();
  EXPECT_THAT(timeline.events(), ElementsAre("checkpointing", "recomputing"));
}

// The inner region runs first, too, while the outer one runs again.
TEST_P(State, FlagsOfNestedRegionsCombine) {
  Timeline timeline;
  const auto inner = [&](const Tensor& t) {
    timeline.add(is_checkpointing() ? "c" : "-", is_recomputing() ? "r" : "-");
    return block(t);
  };
  const auto outer = [&](const Tensor& t) {
    const Tensor y = checkpoint(options(), inner, t.sin());
    timeline.add(is_checkpointing() ? "c" : "-", is_recomputing() ? "r" : "-");
    return block(y);
  };
  expect_same([&] { return block(block(x.sin())); }, [&] { return checkpoint(options(), outer, x); });
  EXPECT_THAT(timeline.events(), ElementsAre("c-", "c-", "cr", "-r", "-r"));
}

TEST_P(State, AnErrorInANestedRegionTakesAllFlagsDown) {
  int runs = 0;
  const auto inner = [&](const Tensor& t) {
    TORCH_CHECK(++runs == 1, "the inner region fails");
    return block(t);
  };
  const auto outer = [&](const Tensor& t) { return block(checkpoint(options(), inner, t.sin())); };
  const Tensor y = checkpoint(options(), outer, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }), HasSubstr("the inner region fails"));
  EXPECT_FALSE(is_checkpointing() || is_recomputing());
}

// Parts without a graph, by a guard and by hand: they have none in the second run either.
TEST_P(State, GradModeInsideIsThatOfTheFunction) {
  const auto f = [&](const Tensor& t) {
    Tensor constant;
    {
      const at::NoGradGuard no_grad;
      constant = block(t).exp();
    }
    const Tensor y = block(t) * constant;
    const bool before = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(false);
    const Tensor other = y.sin();
    c10::GradMode::set_enabled(before);
    return y + other;
  };
  expect_same([&] { return f(x); }, [&] { return checkpoint(options(), f, x); });
}

TEST_P(State, GradModeIsNotThatOfTheBackward) {
  std::vector<bool> modes;
  const auto f = [&](const Tensor& t) {
    modes.push_back(c10::GradMode::is_enabled());
    return block(t);
  };
  const Tensor y = checkpoint(options(), f, x).sum();
  {
    const at::NoGradGuard no_grad;
    y.backward();
    EXPECT_FALSE(c10::GradMode::is_enabled());
  }
  EXPECT_THAT(modes, ElementsAre(GetParam() == Form::kOnDemand, true))
      << "the early form's first run has no graph";
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({block(x).sum()}, {x})[0]));
}

TEST_P(State, AutocastIsThatOfTheForward) {
  const auto autocast = [](bool on) {
    at::autocast::set_autocast_enabled(at::kCPU, on);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  };
  std::vector<at::ScalarType> types;
  const auto f = [&](const Tensor& t) {
    const Tensor y = block(t);
    types.push_back(y.scalar_type());
    return y.to(at::kFloat);
  };
  const auto run = [&](const std::function<Tensor()>& forward) {
    autocast(true);
    Tensor y = forward();
    autocast(false);
    at::autocast::clear_cache();
    return y;
  };
  expect_same([&] { return run([&] { return f(x); }); },
              [&] { return run([&] { return checkpoint(options(), f, x); }); });
  EXPECT_THAT(types, testing::Each(at::kBFloat16));
}

// Autocast keeps the casts of parameters until somebody clears them: a later step would compute with old
// numbers.
TEST_P(State, CastsOfARecomputationAreNotKept) {
  const auto under_autocast = [&](const std::function<Tensor()>& forward) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    Tensor y = forward();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return y;
  };
  const auto f = [&](const Tensor& t) { return block(t).to(at::kFloat); };
  const Tensor y = under_autocast([&] { return checkpoint(options(), f, x); });
  at::autocast::clear_cache();
  y.sum().backward();
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  const Tensor next = under_autocast([&] { return f(x); });
  at::autocast::clear_cache();
  const Tensor wanted = under_autocast([&] { return f(x); });
  at::autocast::clear_cache();
  EXPECT_TRUE(same_bits(next, wanted));
}

TEST_P(State, DefaultDtypeIsThatOfTheForward) {
  std::vector<at::ScalarType> types;
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const Tensor y = checkpoint(
      options(),
      [&](const Tensor& t) {
        types.push_back(at::ones({1}).scalar_type());
        return block(t);
      },
      x);
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  y.sum().backward();
  EXPECT_THAT(types, ElementsAre(at::kDouble, at::kDouble));
}

TEST_P(State, HooksOnSavedTensorsAreThoseOfTheForward) {
  int packed = 0;
  std::vector<int> packed_in_region;
  const auto count = hooks::make_hooks(
      [&](const Tensor& tensor, const hooks::SaveInfo&) {
        ++packed;
        return hooks::Packed{.tensors = {tensor}, .state = {}};
      },
      [](hooks::Packed& kept, const hooks::UnpackInfo&) { return kept.tensors[0]; });
  Tensor y;
  {
    const hooks::ScopedHooks scope(count);
    y = checkpoint(
        options(),
        [&](const Tensor& t) {
          // On demand a region has hooks of its own, and leaves the others to the tensors around it.
          packed_in_region.push_back(hooks::active_hooks() == count);
          return block(t);
        },
        x * 2);
  }
  EXPECT_GT(packed, 0) << "the input of the region is saved by the hooks around it";
  y.sum().backward();
  const bool early = GetParam() == Form::kEarly;
  EXPECT_THAT(packed_in_region, ElementsAre(early, early));
}

}  // namespace
}  // namespace overdrive::checkpoint
