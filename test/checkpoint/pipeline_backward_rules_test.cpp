// Stages on the CPU that go back at the same time: errors, modes and lifetimes are those of one thread.
#include "test/checkpoint/stages_fixture.h"

namespace overdrive::checkpoint {
namespace {

// Hands on a gradient that is there, and loses it.
struct Lose : torch::autograd::Function<Lose> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& t) { return t.clone(); }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors&) { return {Tensor()}; }
};

TEST_F(StagesGoingBack, RefuseWhatARegionRefuses) {
  const Tensor other = at::ones({3}).requires_grad_();
  const auto loss = [&](Checkpointed checkpointed) {
    return pipeline({.chunks = 3, .checkpointed = checkpointed}).forward(x).sum() + (other * 2).sum();
  };
  const auto way_out = HasSubstr("set PipelineOptions::checkpointed to kNever");
  EXPECT_THAT(error_of([&] { torch::autograd::grad({loss(Checkpointed::kExceptLast)}, {x}); }),
              testing::AllOf(HasSubstr("Checkpointing is not compatible with .grad()"), way_out));
  EXPECT_THAT(error_of([&] {
                loss(Checkpointed::kExceptLast).backward({}, false, false, Tensors{x, other});
              }),
              way_out);
  EXPECT_THAT(error_of([&] { loss(Checkpointed::kAlways).backward({}, true, /*create_graph=*/true); }),
              HasSubstr("no gradient of a gradient"));
  for (const Tensor& leaf : {x, other, weights[0], weights[2]}) EXPECT_FALSE(leaf.grad().defined());

  const Tensor first = torch::autograd::grad({loss(Checkpointed::kNever)}, {x}, {}, true, true)[0];
  const Tensor want = torch::autograd::grad({layer(2)(layer(1)(layer(0)(x))).sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(at::allclose(torch::autograd::grad({first.square().sum()}, {x})[0],
                           torch::autograd::grad({want.square().sum()}, {x})[0]));
}

// The second stage fails for micro-batch 1 at once, the first one for 3 much later: but 3 comes before 1.
TEST_F(StagesGoingBack, ThrowTheErrorThatOneThreadWould) {
  std::atomic<bool> fail = true, failed = false;
  const Back failing = [&](int stage, int part) {
    if (!fail) return;
    if (stage == 1 && part == 1) {
      failed = true;
      TORCH_CHECK(false, "1 fails");
    }
    if (stage == 0 && part == 3) {
      for (int i = 0; i < 50 && !failed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      TORCH_CHECK_VALUE(false, "3 fails");
    }
  };
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast}) {
    const Tensor batch = numbered(4);
    const Tensor loss = watched(failing, {.chunks = 4, .checkpointed = checkpointed}).forward(batch).sum();
    fail = true;
    failed = false;
    EXPECT_THROW(
        {
          try {
            loss.backward({}, /*retain_graph=*/true);
          } catch (const c10::ValueError& error) {
            EXPECT_THAT(error.msg(), HasSubstr("3 fails"));
            throw;
          }
        },
        c10::ValueError);
    EXPECT_FALSE(batch.grad().defined());
    fail = false;
    loss.backward();
    EXPECT_TRUE(same_bits(batch.grad(), at::ones({4, 3}))) << "nothing of what failed is left";
  }
}

TEST_F(StagesGoingBack, SayWhichStageFailedToRunAgain) {
  std::atomic<bool> fail = false;
  const Layer failing = [&](const Tensor& t) {
    TORCH_CHECK(!fail || !is_recomputing(), "not again");
    return t * 2;
  };
  const Layer other_shape = [](const Tensor& t) { return is_recomputing() ? t.slice(1, 1) : t * 1; };
  const PipelineOptions options{.chunks = 2, .region = {.name = "net"}};
  const Tensor y = Pipeline({stage(layer(0)), stage(failing)}, options).forward(x).sum();
  fail = true;
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("not again"));
  const Tensor z = Pipeline({stage(other_shape), stage(layer(0))}, options).forward(x).sum();
  EXPECT_THAT(error_of([&] { z.backward(); }), HasSubstr("(net, stage 0) gave another output 0"));
}

TEST_F(StagesGoingBack, HaveTheModesOfTheBackward) {
  std::atomic<int> grad_modes = 0, flags = 0, hooks = 0, elsewhere = 0;
  const auto here = std::this_thread::get_id();
  const Back noting = [&](int, int) {
    ++hooks;
    grad_modes += at::GradMode::is_enabled();
    flags += is_recomputing() || is_checkpointing();
    elsewhere += std::this_thread::get_id() != here;
    at::GradMode::set_enabled(true);  // stays with this node
  };
  const Tensor loss = watched(noting, {.chunks = 3}).forward(numbered(3)).sum();
  loss.backward();
  EXPECT_EQ(hooks, 6);
  EXPECT_EQ(elsewhere, 6);
  EXPECT_EQ(grad_modes, 0);
  EXPECT_EQ(flags, 0);
}

TEST_F(StagesGoingBack, LeaveNothingWhenTheGraphGoes) {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> watched;
  const auto forward = [&] {
    const Tensor captured = at::ones({8}), begin = x * 1;
    watched.emplace_back(captured.getIntrusivePtr());
    watched.emplace_back(begin.getIntrusivePtr());
    const Layer scaled = [captured](const Tensor& t) { return t * captured; };
    return Pipeline({stage(layer(0)), stage(scaled)}, {.chunks = 3}).forward(begin).sum();
  };
  forward();  // never run back
  forward().backward();
  {
    const Tensor loss = forward();
    loss.backward({}, /*retain_graph=*/true);
  }
  for (const auto& tensor : watched) EXPECT_TRUE(tensor.expired());
}

// One thread goes back where the forward drew.
TEST_F(StagesGoingBack, DoNotWhereRandomNumbersWereDrawn) {
  const Layer drop = [this](const Tensor& t) { return at::dropout(layer(1)(t), 0.4, true) * t; };
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast, Checkpointed::kNever}) {
    const auto step = [&](bool threads) {
      Tensor next;
      Tensors all = gradients([&] {
        torch::manual_seed(8);
        const PipelineOptions options{.chunks = 3, .checkpointed = checkpointed, .cpu_threads = threads};
        Pipeline({stage(drop), stage(layer(0)), stage(drop)}, options).forward(x).square().sum().backward();
        next = at::rand({3});
      });
      all.push_back(next);
      return all;
    };
    expect_same(step(true), step(false));
  }
  const Back drawing = [](int stage, int part) {
    if (stage == 0 && part == 2) at::rand({1});
  };
  const Tensor loss = watched(drawing, {.chunks = 4}).forward(numbered(4)).sum();
  EXPECT_THAT(error_of([&] { loss.backward(); }),
              testing::AllOf(HasSubstr("drew random numbers"), HasSubstr("cpu_threads")));
}

// {x} --> stage 0 --> detached or lost --> {y}: nothing comes back to stage 0, as in the plain model.
TEST_F(StagesGoingBack, LeaveStagesThatNoGradientReaches) {
  const Layer detached = [this](const Tensor& t) { return layer(1)(t.detach()); };
  const Layer lost = [this](const Tensor& t) { return Lose::apply(layer(1)(t)); };
  for (const Layer& middle : {detached, lost}) {
    const auto step = [&](bool threads) {
      return gradients([&] {
        Pipeline({stage(layer(0)), stage(middle), stage(layer(2))}, {.chunks = 3, .cpu_threads = threads})
            .forward(x)
            .sum()
            .backward();
      });
    };
    const Tensors got = step(true);
    expect_same(got, step(false));
    EXPECT_FALSE(got[0].defined());
    EXPECT_FALSE(got[1].defined());
    EXPECT_TRUE(got[3].defined());
  }
  const auto none = gradients([&] { Lose::apply(pipeline({.chunks = 3}).forward(x)).sum().backward(); });
  for (const Tensor& gradient : none) EXPECT_FALSE(gradient.defined());
}

TEST_F(StagesGoingBack, NoticeABatchThatWasChanged) {
  Tensor batch = x * 1;
  const Tensor loss = pipeline({.chunks = 3}).forward(batch).sum();
  batch.add_(1);
  EXPECT_THAT(error_of([&] { loss.backward(); }), HasSubstr("modified by an inplace operation"));
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace
}  // namespace overdrive::checkpoint
