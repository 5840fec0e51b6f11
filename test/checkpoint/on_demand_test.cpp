// The form on demand: everything that a graph can do, and when it runs again.
#include "forward_ad/forward_ad.h"
#include "test/checkpoint/checkpoint_fixture.h"
#include "test/support/engines.h"

#include <atomic>
#include <thread>

namespace overdrive::checkpoint {
namespace {

class OnDemand : public CheckpointTest {
 protected:
  Tensor forward(const Options& options = {.form = Form::kOnDemand}) {
    return checkpoint(
        options,
        [this](const Tensor& t) {
          ++runs;
          return block(t);
        },
        x);
  }

  std::atomic<int> runs = 0;
};

TEST_F(OnDemand, AllowsGradAndInputs) {
  const Tensor want = torch::autograd::grad({block(x).sum()}, {x})[0];
  EXPECT_TRUE(same_bits(torch::autograd::grad({forward().sum()}, {x})[0], want));
  torch::autograd::backward({forward().sum()}, {}, false, false, {x});
  EXPECT_TRUE(same_bits(x.grad(), want));
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(OnDemand, AllowsAGradientOfAGradient) {
  const auto second = [this](const Tensor& y) {
    const Tensor gradient = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({gradient.square().sum()}, {x, weight});
  };
  const Tensors want = second(block(x)), got = second(forward());
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
}

TEST_F(OnDemand, NeedsOverdrive) {
  EXPECT_THAT(test::on<test::StockEngine>([&] { return error_of([&] { forward(); }); }),
              HasSubstr("Call overdrive::install() first"));
}

TEST_F(OnDemand, CarriesTangents) {
  const auto level = torch::autograd::forward_ad::enter_dual_level();
  const Tensor dual = at::_make_dual(x.detach(), at::ones_like(x), 0);
  const Tensor want = std::get<1>(at::_unpack_dual(block(dual), 0));
  const Tensor got = std::get<1>(
      at::_unpack_dual(checkpoint(
                           {.form = Form::kOnDemand}, [&](const Tensor& t) { return block(t); }, dual),
                       0));
  torch::autograd::forward_ad::exit_dual_level(level);
  EXPECT_TRUE(same_bits(got.detach(), want.detach()));
}

TEST_F(OnDemand, RunsAgainOnceForAllItsTensors) {
  forward().sum().backward();
  EXPECT_EQ(runs, 2);
}

TEST_F(OnDemand, RunsAgainForEachBackwardOfAKeptGraph) {
  const Tensor y = forward().sum();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(runs, 3);
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("second time"));
}

TEST_F(OnDemand, OrKeepsWhatItMade) {
  const Tensor y = forward({.form = Form::kOnDemand, .keep_recomputed = true}).sum();
  y.backward({}, true);
  const Tensor once = x.grad().clone();
  y.backward();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(same_bits(x.grad(), once * 2));
}

TEST_F(OnDemand, StopsAtTheLastSavedTensor) {
  int ends = 0;
  const auto f = [&](const Tensor& t) {
    const Tensor y = block(t);
    const Tensor z = y + 1;  // saves nothing
    ++ends;
    return z;
  };
  checkpoint({.form = Form::kOnDemand}, f, x).sum().backward();
  EXPECT_EQ(ends, 1);
  checkpoint({.form = Form::kOnDemand, .early_stop = false}, f, x).sum().backward();
  EXPECT_EQ(ends, 3);
}

TEST_F(OnDemand, SurvivesAFunctionThatCatchesEverything) {
  const auto f = [&](const Tensor& t) {
    const Tensor y = t.exp();
    try {
      return y.sin();
    } catch (...) {
      return y;
    }
  };
  expect_same([&] { return f(x); }, [&] { return checkpoint({.form = Form::kOnDemand}, f, x); });
}

TEST_F(OnDemand, AllowsABackwardInsideTheRegion) {
  const auto f = [&](const Tensor& t) {
    const Tensor inner = t.exp().sin().sum();
    const Tensor slope = torch::autograd::grad({inner}, {t}, {}, true, true)[0];
    return block(slope);
  };
  expect_same([&] { return f(x); }, [&] { return checkpoint({.form = Form::kOnDemand}, f, x); });
}

TEST_F(OnDemand, NestsToAnyDepth) {
  const Options options{.form = Form::kOnDemand};
  const std::function<Tensor(const Tensor&, int)> nested = [&](const Tensor& t, int depth) -> Tensor {
    if (depth == 0) return block(t);
    return block(checkpoint(
        options, [&nested, depth](const Tensor& u) { return nested(u, depth - 1); }, t));
  };
  const std::function<Tensor(const Tensor&, int)> plain = [&](const Tensor& t, int depth) -> Tensor {
    return depth == 0 ? block(t) : block(plain(t, depth - 1));
  };
  expect_same([&] { return plain(x, 4); }, [&] { return nested(x, 4); });
}

TEST_F(OnDemand, DropsWhatTheRegionSaves) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> saved;
  const Tensor y = checkpoint(
      {.form = Form::kOnDemand},
      [&](const Tensor& t) {
        const Tensor a = t.exp(), b = a.sin();
        saved.emplace_back(a.storage().getWeakStorageImpl());
        saved.emplace_back(b.storage().getWeakStorageImpl());
        return b.cos();
      },
      x);
  for (const auto& storage : saved) EXPECT_TRUE(storage.expired());
  y.sum().backward();
  EXPECT_TRUE(same_bits(x.grad(), -x.exp().sin().sin() * x.exp().cos() * x.exp()));
}

// What one form leaves in the other's modes, hooks or graph must not be found there.
TEST_F(OnDemand, NestsWithTheEarlyForm) {
  const auto inner = [&](const Tensor& t) { return at::dropout(block(t), 0.25, true).exp(); };
  const auto outer = [&](const Options& around, const Options& inside) {
    torch::manual_seed(4);
    return checkpoint(
        around, [=, this](const Tensor& t) { return block(checkpoint(inside, inner, t.sin())).cos(); }, x);
  };
  const auto plain = [&] {
    torch::manual_seed(4);
    return block(inner(x.sin())).cos();
  };
  expect_same(plain, [&] { return outer({.form = Form::kOnDemand}, {.form = Form::kEarly}); });
  expect_same(plain, [&] { return outer({.form = Form::kEarly}, {.form = Form::kOnDemand}); });
}

// In the inner region's second run the argument comes out of the outer region's hooks, and is no view.
TEST_F(OnDemand, TakesAViewOfAParameterThroughTwoRegions) {
  const Options options{.form = Form::kOnDemand};
  const auto inner = [](const Tensor& t, const Tensor& w) { return at::mm(t, w).tanh(); };
  const auto outer = [&](const Tensor& t) { return checkpoint(options, inner, t.sin(), weight.t()); };
  expect_same([&] { return inner(x.sin(), weight.t()); }, [&] { return checkpoint(options, outer, x); });
}

TEST_F(OnDemand, LeavesACapturedActivationItsGradient) {
  const auto both = [&](bool plain) {
    const Tensor captured = x.exp();
    const auto f = [captured, this](const Tensor& t) { return block(t) * captured; };
    return plain ? f(x.sin()) : checkpoint({.form = Form::kOnDemand}, f, x.sin());
  };
  expect_same([&] { return both(true); }, [&] { return both(false); });
}

TEST_F(OnDemand, AParameterChangedBeforeTheBackwardIsTheUsualError) {
  const Tensor y = forward();
  {
    const at::NoGradGuard no_grad;
    weight.add_(1);
  }
  EXPECT_THAT(error_of([&] { y.sum().backward(); }), HasSubstr("modified by an inplace operation"));
}

// What was recomputed for a node goes when the node lets its tensors go, not with the whole region.
TEST_F(OnDemand, HoldsNothingOfWhatIsLetGo) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made;
  const Tensor y = checkpoint(
      {.form = Form::kOnDemand, .keep_recomputed = true},
      [&](const Tensor& t) {
        const Tensor a = t.exp();
        made.emplace_back(a.storage().getWeakStorageImpl());
        return (a * 2).sin();
      },
      x * 1);
  size_t alive = 0;
  x.register_hook([&](const Tensor&) {
    for (const auto& storage : made) alive += storage.expired() ? 0 : 1;
  });
  y.sum().backward();
  EXPECT_EQ(made.size(), 2);
  EXPECT_EQ(alive, 0);
}

TEST_F(OnDemand, MayBeRunBackOnSeveralThreadsAtOnce) {
  const Tensor y = forward().sum();
  const Tensor want = torch::autograd::grad({block(x).sum()}, {x})[0];
  Tensors got(4);
  std::vector<std::thread> threads;
  for (Tensor& gradient : got) {
    threads.emplace_back([&] { gradient = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0]; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& gradient : got) EXPECT_TRUE(same_bits(gradient, want));
}

TEST_F(OnDemand, AFailedRecomputationCanBeTriedAgain) {
  bool fail = false;
  const Tensor y = checkpoint(
                       {.form = Form::kOnDemand},
                       [&](const Tensor& t) {
                         TORCH_CHECK(!fail, "not yet");
                         return block(t);
                       },
                       x)
                       .sum();
  fail = true;
  EXPECT_THAT(error_of([&] { y.backward({}, true); }), HasSubstr("not yet"));
  EXPECT_FALSE(x.grad().defined());
  fail = false;
  y.backward();
  EXPECT_TRUE(same_bits(x.grad(), torch::autograd::grad({block(x).sum()}, {x})[0]));
}

TEST_F(OnDemand, RunsPlainlyInsideFunctorchLayers) {
  const auto f = [this](const Tensor& t) {
    ++runs;
    return block(t);
  };
  const auto region = [&](const Tensor& t) { return checkpoint({.form = Form::kOnDemand}, f, t); };
  const auto [value, pullback] = forward_ad::vjp(region, x);
  EXPECT_TRUE(same_bits(pullback(at::ones({4, 8})).detach(),
                        forward_ad::vjp(f, x).pullback(at::ones({4, 8})).detach()));
  EXPECT_EQ(runs, 2) << "once each: nothing was dropped";
}

}  // namespace
}  // namespace overdrive::checkpoint
