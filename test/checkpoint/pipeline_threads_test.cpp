// Stages on the CPU: threads of their own, and nothing else that tells the result from that of one thread.
#include "hooks/hooks.h"
#include "test/checkpoint/pipeline_fixture.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

namespace overdrive::checkpoint {
namespace {

// The rows of a batch are numbered, so that a stage knows which micro-batch it has.
Tensor numbered(int64_t rows) {
  return at::arange(rows, at::kFloat).unsqueeze(1).expand({rows, 3}).contiguous().requires_grad_();
}

class StageThreadsTest : public DeviceCheckpointTest {
 protected:
  using Seen = std::function<void(int stage, int part, const Tensor&)>;

  // Two stages that keep each row's number (t * 1) and tell `seen` where they are.
  static Pipeline watched(const Seen& seen, PipelineOptions options) {
    const auto stage = [&](int index) {
      const Layer layer = [seen, index](const Tensor& t) {
        seen(index, static_cast<int>(t.detach()[0][0].item<float>()), t);
        return t * 1;
      };
      return Stage{.layers = {layer}, .device = at::kCPU, .parameters = {}};
    };
    return Pipeline({stage(0), stage(1)}, std::move(options));
  }
  // As many threads as ran stages, the caller's included.
  static size_t threads_of(const Seen& also, PipelineOptions options,
                           const std::function<void()>& around = {}) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    const Pipeline pipeline = watched(
        [&](int stage, int part, const Tensor& t) {
          if (also) also(stage, part, t);
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        },
        std::move(options));
    if (around) around();
    pipeline.forward(numbered(4));
    return threads.size();
  }
};

// Each of two stages holds its micro-batch until the other has begun its own.
TEST_F(StageThreadsTest, WorkAtTheSameTime) {
  std::array<std::atomic<bool>, 2> begun{};
  std::array<bool, 2> met{};
  const auto meet = [&](int stage, int part, const Tensor&) {
    if (part != 2 - stage) return;  // 1 in the second stage, 2 in the first
    const auto mine = static_cast<size_t>(stage);
    begun[mine] = true;
    // For a failing test to end.
    for (int i = 0; i < 10'000 && !begun[1 - mine]; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    met[mine] = begun[1 - mine];
  };
  const Pipeline pipeline = watched(meet, {.chunks = 4, .checkpointed = Checkpointed::kNever});
  const Tensor batch = numbered(4);
  EXPECT_TRUE(at::equal(pipeline.forward(batch), batch));
  EXPECT_TRUE(met[0] && met[1]);
}

TEST_F(StageThreadsTest, AreOnePerStageAndTheCallersForTheFirstMicroBatch) {
  EXPECT_EQ(threads_of({}, {.chunks = 4}), 3);
  EXPECT_EQ(threads_of({}, {.chunks = 4, .cpu_threads = false}), 1);
  EXPECT_EQ(threads_of({}, {.chunks = 1}), 1);
  for (int i = 0; i < 5'000 && !test::threads_named("overdrive-stage").empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(test::threads_named("overdrive-stage"), testing::IsEmpty()) << "they go with their pipeline";
}

TEST_F(StageThreadsTest, AreNotUsedWhereSomethingOfTheCallersWouldBeInSeveralPlaces) {
  const auto keep =
      hooks::make_hooks([](const Tensor& tensor,
                           const hooks::SaveInfo&) { return hooks::Packed{.tensors = {tensor}, .state = {}}; },
                        [](hooks::Packed& from, const hooks::UnpackInfo&) { return from.tensors[0]; });
  std::optional<hooks::ScopedHooks> scope;
  EXPECT_EQ(threads_of({}, {.chunks = 4}, [&] { scope.emplace(keep); }), 1);
  scope.reset();
  size_t inside = 0;
  const Tensor y = checkpoint(
      [&](const Tensor& t) {
        inside = std::max(inside, threads_of({}, {.chunks = 4}));
        return t * 2;
      },
      x);
  y.sum().backward();
  EXPECT_EQ(inside, 1) << "a region's flags are its thread's";
}

// {stage 0} --> {stage 1}, four micro-batches: which node comes when, by the hooks on what the stages made.
TEST_F(StageThreadsTest, NumberNodesAsOneThreadDoes) {
  const auto order = [](bool threads) {
    Timeline timeline;
    const auto noting = [&](int stage) {
      return [&timeline, stage](const Tensor& t) {
        const int part = static_cast<int>(t.detach()[0][0].item<float>());
        Tensor y = t;
        for (int k = 0; k < 3 + part % 2; ++k) {
          y = y * 1;
          y.register_hook(
              [&timeline, stage, part, k](const Tensor&) { timeline.add(part, ".", stage, ".", k); });
        }
        return y;
      };
    };
    const Pipeline pipeline({{.layers = {noting(0)}, .device = at::kCPU, .parameters = {}},
                             {.layers = {noting(1)}, .device = at::kCPU, .parameters = {}}},
                            {.chunks = 4, .checkpointed = Checkpointed::kNever, .cpu_threads = threads});
    for (int i = 0; i < 2; ++i) pipeline.forward(numbered(4)).sum().backward();
    return timeline.events();
  };
  const Events want = order(false);
  EXPECT_THAT(want, testing::SizeIs(testing::Gt(50)));
  EXPECT_EQ(order(true), want);
}

TEST_F(StageThreadsTest, HaveTheModesOfTheCallerAndFlagsOfTheirOwn) {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::string> seen;
  const auto note = [&](int stage, int part, const Tensor& t) {
    const std::lock_guard lock(mutex);
    seen[{part, stage}] += std::string(is_checkpointing() ? "c" : "-") + (is_recomputing() ? "r" : "-") +
                           (at::GradMode::is_enabled() ? "g" : "-") + (t.is_inference() ? "i" : "-") + " ";
  };
  const Pipeline pipeline = watched(note, {.chunks = 3, .checkpointed = Checkpointed::kExceptLast});
  {
    const at::NoGradGuard no_grad;
    pipeline.forward(numbered(3));
  }
  pipeline.forward(numbered(3)).sum().backward();
  for (const int stage : {0, 1}) {
    for (const int part : {0, 1}) EXPECT_EQ((seen[{part, stage}]), "---- c--- -rg- ") << part << ", " << stage;
    EXPECT_EQ((seen[{2, stage}]), "---- --g- ") << "not checkpointed, stage " << stage;
  }
}

TEST_F(StageThreadsTest, ThrowTheErrorThatOneThreadWouldAndGoOnWithTheNextBatch) {
  const Tensor generator = at::detail::getDefaultCPUGenerator().get_state();
  std::atomic<bool> fail = true;
  std::atomic<int> flags = 0;
  const auto seen = [&](int stage, int part, const Tensor&) {
    // The second stage's error comes later, and is of an earlier micro-batch.
    if (fail && stage == 1 && part == 1) {
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
      TORCH_CHECK_VALUE(false, "part 1 fails");
    }
    TORCH_CHECK(!fail || stage != 0 || part != 2, "part 2 fails");
    flags += is_checkpointing() + is_recomputing();
  };
  const Pipeline pipeline = watched(seen, {.chunks = 4, .checkpointed = Checkpointed::kAlways});
  for (int i = 0; i < 5; ++i) {
    fail = true;
    EXPECT_THROW(
        {
          try {
            pipeline.forward(numbered(4));
          } catch (const c10::ValueError& error) {
            EXPECT_THAT(error.msg(), HasSubstr("part 1 fails"));
            throw;
          }
        },
        c10::ValueError);
    EXPECT_FALSE(is_checkpointing());
    fail = false;
    flags = 0;
    const at::NoGradGuard no_grad;  // so that no region raises a flag
    EXPECT_TRUE(at::equal(pipeline.forward(numbered(4)), numbered(4)));
    EXPECT_EQ(flags, 0) << "a flag stayed up on a thread";
  }
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), generator));
}

// In the order of the unsplit model, which only one thread can keep.
TEST_F(StageThreadsTest, AreNotUsedForStagesThatDrawRandomNumbers) {
  const auto drop = [](int, int, const Tensor& t) { at::dropout(t, 0.5, true); };
  EXPECT_EQ(threads_of(drop, {.chunks = 4}), 1);
  // Seen in the first micro-batch; one that draws later only is noticed afterwards.
  const auto later = [](int stage, int part, const Tensor& t) {
    if (stage == 1 && part == 2) at::dropout(t, 0.5, true);
  };
  EXPECT_THAT(error_of([&] { threads_of(later, {.chunks = 4}); }),
              testing::AllOf(HasSubstr("drew random numbers"), HasSubstr("cpu_threads")));
  EXPECT_EQ(threads_of(later, {.chunks = 4, .cpu_threads = false}), 1);
}

}  // namespace
}  // namespace overdrive::checkpoint
