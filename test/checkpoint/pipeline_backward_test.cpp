// Stages on the CPU that go back at the same time: bits, errors and rules are those of one thread.
#include "test/checkpoint/pipeline_fixture.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace overdrive::checkpoint {
namespace {

// Hands on a gradient that is there, and loses it.
struct Lose : torch::autograd::Function<Lose> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& t) { return t.clone(); }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors&) { return {Tensor()}; }
};

void wait_for(const std::atomic<bool>& there) {
  for (int i = 0; i < 10'000 && !there; ++i) {  // for a failing test to end
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class StagesGoingBack : public DeviceCheckpointTest {
 protected:
  void SetUp() override {
    DeviceCheckpointTest::SetUp();
    for (int i = 0; i < 3; ++i) weights.push_back((at::randn({8, 8}) / 3).requires_grad_());
    x = at::randn({7, 8}).requires_grad_();
  }

  Layer layer(size_t index) const {
    return [w = weights[index]](const Tensor& t) { return at::linear(t, w).tanh().sin(); };
  }
  static Stage stage(Layer layer) {
    return {.layers = {std::move(layer)}, .device = at::kCPU, .parameters = {}};
  }
  Pipeline pipeline(const PipelineOptions& options) const {
    return Pipeline({stage(layer(0)), stage(layer(1)), stage(layer(2))}, options);
  }

  // Two stages that hand on rows with the micro-batch's number, and note gradients on their way back.
  using Back = std::function<void(int stage, int part)>;
  static Pipeline watched(const Back& back, const PipelineOptions& options) {
    const auto watching = [&back](int index) {
      return stage([&back, index](const Tensor& t) {
        Tensor y = t * 1;
        const int part = static_cast<int>(t.detach()[0][0].item<float>());
        if (y.requires_grad()) y.register_hook([&back, index, part](const Tensor&) { back(index, part); });
        return y;
      });
    };
    return Pipeline({watching(0), watching(1)}, options);
  }
  static Tensor numbered(int64_t rows) {
    return at::arange(rows, at::kFloat).unsqueeze(1).expand({rows, 3}).contiguous().requires_grad_();
  }

  // What a step leaves behind.
  Tensors gradients(const std::function<void()>& step) {
    x.mutable_grad() = Tensor();
    for (const Tensor& w : weights) w.mutable_grad() = Tensor();
    step();
    Tensors all{x.grad()};
    for (const Tensor& w : weights) all.push_back(w.grad());
    return all;
  }
  static void expect_same(const Tensors& got, const Tensors& want) {
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  }

  Tensors weights;
};

// The second stage holds micro-batch 1 until the first has 2, and that holds it until the other has come.
TEST_F(StagesGoingBack, WorkAtTheSameTime) {
  std::array<std::atomic<bool>, 2> begun{}, met{};
  const Back meet = [&](int stage, int part) {
    if (part != 2 - stage) return;
    const auto mine = static_cast<size_t>(stage);
    begun[mine] = true;
    wait_for(begun[1 - mine]);
    met[mine] = begun[1 - mine].load();
  };
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast}) {
    begun[0] = begun[1] = met[0] = met[1] = false;
    const Tensor batch = numbered(4);
    watched(meet, {.chunks = 4, .checkpointed = checkpointed}).forward(batch).sum().backward();
    EXPECT_TRUE(met[0] && met[1]);
    EXPECT_TRUE(same_bits(batch.grad(), at::ones({4, 3})));
  }
}

// The second stage's gradient holds until the first stage runs again.
TEST_F(StagesGoingBack, RunAgainBeforeTheirGradientArrives) {
  for (const bool early : {true, false}) {
    std::atomic<bool> again = false, was_again = false;
    const auto first = [&](const Tensor& t) {
      if (is_recomputing()) again = true;
      return t * 2;
    };
    const auto second = [&](const Tensor& t) {
      const Tensor y = t * 3;
      if (is_recomputing()) {
        y.register_hook([&](const Tensor&) {
          if (early) wait_for(again);
          was_again = was_again || again;
          again = false;
        });
      }
      return y;
    };
    const Pipeline pipeline(
        {stage(first), stage(second)},
        {.chunks = 2, .checkpointed = Checkpointed::kAlways, .recompute_before_gradient = early});
    pipeline.forward(x).sum().backward();
    EXPECT_TRUE(was_again || !early);
    EXPECT_TRUE(same_bits(x.grad(), at::full({7, 8}, 6.0f)));
    x.mutable_grad() = Tensor();
  }
}

// Sums whose order shows: 1e8 + 1 - 1e8 is 0 or 1.
TEST_F(StagesGoingBack, AddAParametersGradientsInTheOrderOfOneThread) {
  const Tensor scale = at::tensor({1.0f, 1e8f, 3.0f, -1e8f, 7.0f, 1e7f, -2.0f}).unsqueeze(1);
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast, Checkpointed::kNever}) {
    for (const int64_t chunks : {2, 7}) {
      const auto step = [&](bool threads) {
        return gradients([&] {
          const PipelineOptions options{.chunks = chunks, .checkpointed = checkpointed, .cpu_threads = threads};
          (pipeline(options).forward(x) * scale).sum().backward();
        });
      };
      const Tensors want = step(false);
      for (int i = 0; i < 4; ++i) expect_same(step(true), want);
    }
  }
}

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

TEST_F(StagesGoingBack, GoBackAgainWhereTheGraphIsKept) {
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast}) {
    const auto thrice = [&](bool threads) {
      Tensor loss;
      const Tensors all = gradients([&] {
        loss = pipeline({.chunks = 4, .checkpointed = checkpointed, .cpu_threads = threads}).forward(x).sum();
        loss.backward({}, /*retain_graph=*/true);
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
      });
      EXPECT_THAT(error_of([&] { loss.backward(); }), HasSubstr("second time"));
      return all;
    };
    expect_same(thrice(true), thrice(false));
  }
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

// The stages' threads are at work for the outer one, and may not be waited for.
TEST_F(StagesGoingBack, AllowTheSamePipelineInAHook) {
  std::unique_ptr<Pipeline> same;
  std::atomic<bool> inside = false;
  const Tensor batch = numbered(4), before = numbered(4), meanwhile = numbered(4);
  Tensor loss_before;
  const Back nested = [&](int, int) {
    if (inside.exchange(true)) return;
    loss_before.backward();
    const at::AutoGradMode with_graph(true);
    same->forward(meanwhile).sum().backward();
  };
  same = std::make_unique<Pipeline>(watched(nested, {.chunks = 4}));
  loss_before = same->forward(before).sum();
  same->forward(batch).sum().backward();
  for (const Tensor& leaf : {batch, before, meanwhile}) EXPECT_TRUE(same_bits(leaf.grad(), at::ones({4, 3})));
}

// A batch goes forward while another goes back: their jobs meet on the same threads.
TEST_F(StagesGoingBack, MayBeWaitedForFromSeveralThreads) {
  const Pipeline all = pipeline({.chunks = 4});
  const Tensors want = gradients([&] { all.forward(x).sum().backward(); });
  Tensors inputs;
  for (int i = 0; i < 2; ++i) inputs.push_back(x.detach().clone().requires_grad_());
  std::vector<std::thread> threads;
  for (const Tensor& input : inputs) {
    threads.emplace_back([&all, input, &want] {
      for (int i = 0; i < 8; ++i) {
        input.mutable_grad() = Tensor();
        all.forward(input).sum().backward();
        EXPECT_TRUE(same_bits(input.grad(), want[0]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StagesGoingBack, OutliveTheirPipeline) {
  const Tensors want =
      gradients([&] { pipeline({.chunks = 3, .cpu_threads = false}).forward(x).sum().backward(); });
  const Tensors got = gradients([&] {
    const Tensor loss = pipeline({.chunks = 3}).forward(x).sum();
    std::thread([&] { loss.backward(); }).join();
  });
  expect_same(got, want);
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

// A batch from a device, and a stage that works on one: what crosses over goes back with the stage.
TEST_F(StagesGoingBack, MayHaveTensorsElsewhere) {
  const auto device = test::fake::device(1);
  const Layer there_and_on = [this, device](const Tensor& t) { return layer(1)(t).to(device) * 2; };
  const Tensor leaf = x.detach().to(device).requires_grad_();
  const auto step = [&](bool threads) {
    leaf.mutable_grad() = Tensor();
    Tensors all = gradients([&] {
      Pipeline({stage(layer(0)), stage(there_and_on), stage(layer(2))},
               {.chunks = 3, .checkpointed = Checkpointed::kAlways, .cpu_threads = threads})
          .forward(leaf)
          .sum()
          .backward();
    });
    all[0] = leaf.grad().cpu();
    return all;
  };
  expect_same(step(true), step(false));
}

}  // namespace
}  // namespace overdrive::checkpoint
