// Chains: which steps run again, how often, and how much is in memory meanwhile.
#include "checkpoint/chain/sequential.h"
#include "bench/support/tensor_bytes.h"
#include "test/checkpoint/checkpoint_fixture.h"

#include <torch/nn.h>

namespace overdrive::checkpoint {
namespace {

TEST(Schedule, CutsAChainIntoEvenParts) {
  EXPECT_THAT(even_parts(9, 5), ElementsAre(2, 2, 2, 2, 1));
  EXPECT_THAT(even_parts(8, 2), ElementsAre(4, 4));
  EXPECT_THAT(even_parts(3, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(error_of([] { even_parts(3, 4); }), HasSubstr("from 1 to 3 is possible"));
}

int64_t reruns(int64_t steps, int64_t snapshots) {
  if (steps == 1) return 0;
  if (snapshots == 1) return steps * (steps - 1) / 2;
  const int64_t k = next_snapshot(steps, snapshots);
  EXPECT_GE(k, 1);
  EXPECT_LT(k, steps);
  return k + reruns(steps - k, snapshots - 1) + reruns(k, snapshots);
}

TEST(Schedule, RevolveRunsAsFewStepsAsTheClosedFormSays) {
  for (int64_t steps = 1; steps <= 60; ++steps) {
    for (int64_t snapshots = 1; snapshots <= 20; ++snapshots) {
      ASSERT_EQ(reruns(steps, snapshots), fewest_reruns(steps, snapshots)) << steps << ", " << snapshots;
    }
  }
}

// That the closed form is the least is seen by trying every place for the next snapshot.
TEST(Schedule, TheClosedFormIsTheLeastThereIs) {
  constexpr int64_t kSteps = 200, kSnapshots = 20;
  std::vector<std::vector<int64_t>> least(kSnapshots + 1, std::vector<int64_t>(kSteps + 1, 0));
  for (int64_t s = 1; s <= kSnapshots; ++s) {
    for (int64_t n = 2; n <= kSteps; ++n) {
      int64_t best = n * (n - 1) / 2;
      for (int64_t k = 1; s > 1 && k < n; ++k) best = std::min(best, k + least[s - 1][n - k] + least[s][k]);
      least[s][n] = best;
      ASSERT_EQ(best, fewest_reruns(n, s)) << n << ", " << s;
      if (s == 1) continue;
      const int64_t k = next_snapshot(n, s);
      ASSERT_EQ(k + least[s - 1][n - k] + least[s][k], best) << "next_snapshot(" << n << ", " << s << ")";
    }
  }
}

class Sequential : public CheckpointTest {
 protected:
  // Layers with weights of their own, one after the other a linear map, a nonlinearity, and a dropout.
  std::vector<Layer> layers(size_t count) {
    std::vector<Layer> chain;
    for (size_t i = 0; i < count; ++i) {
      Tensor w = at::randn({8, 8}).div_(3).requires_grad_();
      weights.push_back(w);
      chain.push_back([this, w, i](const Tensor& t) {
        ++calls;
        if (i % 3 == 1) return at::dropout(t, 0.25, true);
        return i % 3 == 2 ? t.tanh() : at::linear(t, w);
      });
    }
    return chain;
  }

  static Tensor plain(const std::vector<Layer>& chain, Tensor t) {
    for (const Layer& layer : chain) t = layer(t);
    return t;
  }

  // Value and gradients with one seed, for comparing.
  Tensors results(const std::function<Tensor()>& forward) {
    torch::manual_seed(5);
    clear_gradients();
    for (Tensor& w : weights) w.mutable_grad() = Tensor();
    calls = 0;
    const Tensor y = forward();
    (y * at::rand_like(y)).sum().backward();
    Tensors all{y.detach(), x.grad()};
    for (const Tensor& w : weights) all.push_back(w.grad());
    return all;
  }

  void expect_equal_to_plain(const std::vector<Layer>& chain, const ChainSchedule& schedule,
                             const Options& options) {
    const Tensors want = results([&] { return plain(chain, x); });
    const Tensors got = results([&] { return checkpoint_sequential(chain, x, schedule, options); });
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  }

  Tensors weights;
  int64_t calls = 0;
};

TEST_F(Sequential, InSegmentsIsThePlainChain) {
  const auto chain = layers(9);
  for (int64_t count : {1, 2, 5, 9}) {
    expect_equal_to_plain(chain, Segments{count}, {.form = Form::kEarly});
    expect_equal_to_plain(chain, Segments{count}, {.form = Form::kOnDemand});
  }
}

TEST_F(Sequential, DoesNotRunTheLastSegmentAgain) {
  const auto chain = layers(9);
  expect_equal_to_plain(chain, Segments{5}, {});
  EXPECT_EQ(calls, 9 + 8);
}

TEST_F(Sequential, WithRevolveIsThePlainChainInTheFewestRuns) {
  for (size_t count : {1, 2, 3, 10, 23}) {
    for (int64_t snapshots : {1, 2, 3, 7, 30}) {
      weights.clear();
      expect_equal_to_plain(layers(count), Revolve{snapshots}, {});
      const auto steps = static_cast<int64_t>(count);
      EXPECT_EQ(calls, steps + fewest_reruns(steps, snapshots)) << count << " layers, " << snapshots;
    }
  }
}

TEST_F(Sequential, WithRevolveRefusesWhatARegionRefuses) {
  const auto chain = layers(5);
  const Tensor y = checkpoint_sequential(chain, x, Revolve{2}).sum();
  EXPECT_THAT(error_of([&] { torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true); }),
              HasSubstr("Checkpointing is not compatible"));
  y.backward({}, true);
  y.backward();
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("second time"));
  EXPECT_THAT(error_of([&] { checkpoint_sequential(chain, x, Revolve{0}); }), HasSubstr("needs a snapshot"));
  EXPECT_THAT(error_of([&] { checkpoint_sequential(chain, x, Revolve{2}, {.form = Form::kOnDemand}); }),
              HasSubstr("Revolve is of the early form"));
}

TEST_F(Sequential, TakesTheLayersOfAModule) {
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8));
  const Tensor want = model->forward(x);
  EXPECT_TRUE(same_bits(checkpoint_sequential(layers_of(*model), x, Segments{2}).detach(), want.detach()));
}

// A chain of 100 elementwise layers: what is in memory at once grows with the chain, with its root, or not.
TEST_F(Sequential, HoldsLessMemory) {
  const Tensor big = at::randn({64, 1024}).requires_grad_();
  const std::vector<Layer> chain(100, [](const Tensor& t) { return t.sin(); });
  const auto peak = [&](const std::function<Tensor()>& forward) {
    big.mutable_grad() = Tensor();
    return static_cast<double>(bench::TensorBytes::peak_of([&] { forward().sum().backward(); }));
  };
  const double whole = peak([&] { return plain(chain, big); });
  for (const Form form : {Form::kEarly, Form::kOnDemand}) {
    EXPECT_LT(peak([&] { return checkpoint_sequential(chain, big, Segments{10}, {.form = form}); }),
              0.3 * whole);
  }
  EXPECT_LT(peak([&] { return checkpoint_sequential(chain, big, Revolve{4}); }), 0.12 * whole);
  // Twelve states and a few for the step under way, not twelve kept and twelve made again.
  EXPECT_LT(peak([&] { return checkpoint_sequential(chain, big, Revolve{12}); }), 0.20 * whole);
}

// 10,000 layers: tensors for the kept states and the step under way; and no call inside another for each layer.
TEST_F(Sequential, WithRevolveALongChainNeedsNeitherMemoryNorStack) {
  constexpr int64_t kLayers = 10'000, kSnapshots = 20;
  const Tensor state = at::randn({1024}).requires_grad_();
  uintptr_t lowest = UINTPTR_MAX, highest = 0;
  const std::vector<Layer> chain(kLayers, [&](const Tensor& t) {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    lowest = std::min(lowest, here);
    highest = std::max(highest, here);
    ++calls;
    return t.sin();
  });
  plain(chain, state).sum().backward();
  const Tensor want = state.grad().clone();
  state.mutable_grad() = Tensor();
  lowest = UINTPTR_MAX;
  highest = calls = 0;
  const int64_t peak = bench::TensorBytes::peak_of(
      [&] { checkpoint_sequential(chain, state, Revolve{kSnapshots}).sum().backward(); });
  EXPECT_TRUE(same_bits(state.grad(), want));
  EXPECT_EQ(calls, kLayers + fewest_reruns(kLayers, kSnapshots));
  EXPECT_LT(peak, (kSnapshots + 10) * static_cast<int64_t>(state.nbytes()));
  EXPECT_LT(highest - lowest, 64 * 1024) << "bytes of stack between the first layer and the deepest";
}

}  // namespace
}  // namespace overdrive::checkpoint
