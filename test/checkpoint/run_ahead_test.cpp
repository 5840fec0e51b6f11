// Recomputations that begin before their turn: where they run, that they change no bit, and what ends them.
#include "test/checkpoint/checkpoint_fixture.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace overdrive::checkpoint {
namespace {

// Hands the gradient on, times a random number.
struct Noise : torch::autograd::Function<Noise> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& t) { return t.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * at::rand_like(gradients[0])};
  }
};

class RunAhead : public CheckpointTest {
 protected:
  using Block = std::function<Tensor(const Tensor&)>;

  // Blocks one after the other; without options, plainly.
  Tensor chain(const std::vector<Block>& blocks, const std::optional<Options>& options) {
    Tensor t = x;
    for (const Block& block : blocks) t = options ? checkpoint(*options, block, t) : block(t);
    return t;
  }

  // What a step leaves behind, the generator's next number included.
  Tensors step(const std::function<Tensor()>& forward) {
    torch::manual_seed(21);
    clear_gradients();
    const Tensor y = forward();
    y.square().sum().backward();
    return {y.detach(), x.grad(), weight.grad(), at::rand({3})};
  }
};

TEST_F(RunAhead, ChangesNoBitWhereRegionsAndNodesDrawRandomNumbers) {
  const auto dropped = [this](const Tensor& t) { return at::dropout(block(t), 0.4, true) * t; };
  const auto net = [&](const std::optional<Options>& options) {
    Tensor t = chain({dropped}, options);
    t = Noise::apply(t);
    return options ? checkpoint(*options, dropped,
                                checkpoint(
                                    *options, [this](const Tensor& u) { return block(u); }, t))
                   : dropped(block(t));
  };
  const Tensors want = step([&] { return net(std::nullopt); });
  for (int i = 0; i < 500; ++i) {
    const Tensors got = step([&] { return net(Options{.form = Form::kEarly, .ahead = 2}); });
    for (size_t k = 0; k < want.size(); ++k)
      ASSERT_TRUE(same_bits(got[k], want[k])) << "step " << i << ", " << k;
  }
}

TEST_F(RunAhead, RunsEachRegionOnceWhoeverIsFirst) {
  std::atomic<int> runs = 0;
  const Block counting = [&](const Tensor& t) {
    runs += is_recomputing();
    return block(t);
  };
  const std::vector<Block> blocks(12, counting);
  const Tensors want = step([&] { return chain(blocks, std::nullopt); });
  for (int i = 0; i < 50; ++i) {
    const Tensors got = step([&] { return chain(blocks, Options{.form = Form::kEarly, .ahead = 3}); });
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_TRUE(same_bits(got[k], want[k])) << "step " << i << ", " << k;
    }
  }
  EXPECT_EQ(runs, 50 * 12);
}

// The last region's gradient is held until the first region runs again, which then can only be elsewhere.
TEST_F(RunAhead, RunsElsewhereWhileTheGradientIsBeingMade) {
  const auto here = std::this_thread::get_id();
  std::atomic<bool> begun = false, elsewhere = false;
  const auto first = [&](const Tensor& t) {
    if (is_recomputing()) {
      elsewhere = std::this_thread::get_id() != here;
      begun = true;
      begun.notify_all();
    }
    return block(t);
  };
  const auto last = [&](const Tensor& t) {
    const Tensor y = block(t);
    if (is_recomputing()) y.register_hook([&](const Tensor&) { begun.wait(false); });
    return y;
  };
  chain({first, last}, Options{.form = Form::kEarly, .ahead = 1}).sum().backward();
  EXPECT_TRUE(elsewhere);
}

// The same, with a region inside each: it runs first while the one around it runs again.
TEST_F(RunAhead, FlagsAreUpOnTheOtherThread) {
  const auto here = std::this_thread::get_id();
  std::mutex mutex;
  std::set<std::string> elsewhere;
  std::atomic<int> begun = 0;
  const auto note = [&](const char* region) {
    if (std::this_thread::get_id() == here) return;
    const std::lock_guard lock(mutex);
    elsewhere.insert(c10::str(region, is_checkpointing() ? " c" : " -", is_recomputing() ? "r" : "-"));
  };
  const Block first = [&](const Tensor& t) {
    const Tensor y = checkpoint(
        kEarlyForm,
        [&](const Tensor& u) {
          note("inner");
          return block(u);
        },
        t.sin());
    note("outer");
    if (is_recomputing()) {
      ++begun;
      begun.notify_all();
    }
    return y;
  };
  const Block last = [&](const Tensor& t) {
    const Tensor y = block(t);
    if (is_recomputing()) {
      y.register_hook([&](const Tensor&) {
        for (int now = begun; now < 2; now = begun) begun.wait(now);
      });
    }
    return y;
  };
  chain({first, first, last}, Options{.form = Form::kEarly, .ahead = 2}).sum().backward();
  EXPECT_THAT(elsewhere, ElementsAre("inner cr", "outer -r"));
}

TEST_F(RunAhead, LeavesRegionsThatDoNotAllowIt) {
  const auto here = std::this_thread::get_id();
  std::atomic<int> elsewhere = 0;
  const Block noting = [&](const Tensor& t) {
    if (is_recomputing()) elsewhere += std::this_thread::get_id() != here;
    return block(t);
  };
  checkpoint({.form = Form::kEarly, .ahead = 3}, noting,
             checkpoint(kEarlyForm, noting, checkpoint(kEarlyForm, noting, x)))
      .sum()
      .backward();
  EXPECT_EQ(elsewhere, 0);
}

// A backward takes the nodes of a recomputation before those of the forward, whichever thread made them.
TEST_F(RunAhead, NumbersNodesAfterThoseThatAreThere) {
  std::mutex mutex;
  std::vector<uint64_t> numbers;
  const Block noting = [&](const Tensor& t) {
    Tensor y = block(t);
    const std::lock_guard lock(mutex);
    if (is_recomputing()) numbers.push_back(y.grad_fn()->sequence_nr());
    return y;
  };
  const Tensor loss = chain(std::vector<Block>(4, noting), Options{.form = Form::kEarly, .ahead = 2}).sum();
  loss.backward();
  EXPECT_THAT(numbers,
              testing::AllOf(testing::SizeIs(4), testing::Each(testing::Gt(loss.grad_fn()->sequence_nr()))));
}

TEST_F(RunAhead, AnErrorComesFromTheNodeItself) {
  std::atomic<bool> fail = true;
  const Block failing = [&](const Tensor& t) {
    TORCH_CHECK(!is_recomputing() || !fail, "not this time");
    return block(t);
  };
  const Block good = [this](const Tensor& t) { return block(t); };
  const Tensor y = chain({good, failing, good}, Options{.form = Form::kEarly, .ahead = 2}).sum();
  EXPECT_THAT(error_of([&] { y.backward({}, /*retain_graph=*/true); }), HasSubstr("not this time"));
  EXPECT_FALSE(x.grad().defined());
  fail = false;
  clear_gradients();
  y.backward();
  const Tensor got = x.grad().clone();
  clear_gradients();
  chain({good, failing, good}, std::nullopt).sum().backward();
  EXPECT_TRUE(same_bits(got, x.grad()));
}

// What was made ahead for a backward that failed is of parameters that have changed since.
TEST_F(RunAhead, WhatAFailedBackwardOrderedIsNotUsedLater) {
  const Tensor bias = at::zeros({8});
  bool fail = true;
  const Block biased = [&](const Tensor& t) { return (t.sin() + bias).exp(); };
  const auto forward = [&](const std::optional<Options>& options) {
    const Tensor t = chain({biased}, options);
    const Tensor u = t * 1;
    u.register_hook([&](const Tensor&) { TORCH_CHECK(!fail, "not yet"); });
    return (options ? checkpoint(*options, biased, u) : biased(u)).sum();
  };
  const Options options{.form = Form::kEarly, .check_determinism = false, .ahead = 1};
  const Tensor y = forward(options);
  EXPECT_THAT(error_of([&] { y.backward({}, /*retain_graph=*/true); }), HasSubstr("not yet"));
  bias.add_(1);
  fail = false;
  clear_gradients();
  y.backward();
  const Tensor with_ahead = x.grad().clone();
  bias.sub_(1);
  const Tensor z = forward(Options{.form = Form::kEarly, .check_determinism = false});
  bias.add_(1);
  clear_gradients();
  z.backward();
  EXPECT_TRUE(same_bits(with_ahead, x.grad()));
}

TEST_F(RunAhead, WaitsForAFunctionThatIsStillRunning) {
  std::atomic<int> inside = 0;
  for (int i = 0; i < 50; ++i) {
    auto owned = std::make_unique<int>(3);
    const Block using_it = [&inside, raw = owned.get(), this](const Tensor& t) {
      ++inside;
      const Tensor y = block(t) * *raw;
      --inside;
      return y;
    };
    {
      Tensor t = chain({using_it, using_it, using_it}, Options{.form = Form::kEarly, .ahead = 3});
      t.register_hook([](const Tensor&) {});
      const Tensor u = checkpoint(
          {.form = Form::kEarly, .ahead = 3},
          [](const Tensor& v) {
            TORCH_CHECK(!is_recomputing(), "fails");
            return v * 2;
          },
          t);
      EXPECT_THAT(error_of([&] { u.sum().backward(); }), HasSubstr("fails"));
    }
    EXPECT_EQ(inside, 0) << "the graph is gone, so its functions may go";
    owned.reset();
  }
}

}  // namespace
}  // namespace overdrive::checkpoint
