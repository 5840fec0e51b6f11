// Stages on the CPU that go back at the same time: bits are those of one thread.
#include "test/checkpoint/stages_fixture.h"

#include <array>

namespace overdrive::checkpoint {
namespace {

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

TEST_F(StagesGoingBack, StayOnTheCallersThreadWhereAsked) {
  std::atomic<int> hooks = 0, elsewhere = 0;
  const auto here = std::this_thread::get_id();
  const Back noting = [&](int, int) {
    ++hooks;
    elsewhere += std::this_thread::get_id() != here;
  };
  for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kNever}) {
    const Tensor batch = numbered(3);
    watched(noting, {.chunks = 3, .checkpointed = checkpointed, .cpu_threads_back = false})
        .forward(batch)
        .sum()
        .backward();
    EXPECT_TRUE(same_bits(batch.grad(), at::ones({3, 3})));
  }
  EXPECT_EQ(hooks, 12);
  EXPECT_EQ(elsewhere, 0);
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
