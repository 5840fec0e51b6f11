// Inputs of every kind: those that a replay can copy, and those of which a copy would not be the same.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

using testing::HasSubstr;

TEST(CaptureInputs, ThatAreExpanded) {
  at::Tensor w = torch::rand({4, 3});
  const auto f = [&](at::Tensor x) { return (x * w).sum(0); };
  auto step = capture(f);
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = torch::full({1, 3}, i, torch::kFloat).expand({4, 3});
    EXPECT_TRUE(same_bits(step(x), f(x))) << i;
  }
  EXPECT_GT(replays(step.stats()), 2u) << step.explain();
  // Windows that overlap, and rows that are returned expanded.
  auto windows = capture([](at::Tensor x) { return (x * 2).sum(0, true).expand({3, 2}); });
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = (torch::arange(6, torch::kFloat) + i).unfold(0, 2, 1);
    EXPECT_TRUE(same_bits(windows(x), (x * 2).sum(0, true).expand({3, 2}))) << i;
  }
  EXPECT_GT(replays(windows.stats()), 2u) << windows.explain();
}

TEST(CaptureInputs, WhoseNeighboursAreRead) {
  const at::Tensor base = torch::arange(64, torch::kFloat);
  const auto beyond = [](at::Tensor x) { return x.as_strided({4}, {1}, 40) * 1; };
  const auto inside = [](at::Tensor x) { return x.as_strided({4}, {1}, 20) * 1; };
  for (const auto& f : std::vector<std::function<at::Tensor(at::Tensor)>>{beyond, inside}) {
    auto step = capture(f);
    const at::Tensor x = base.slice(0, 20, 36);
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(same_bits(step(x), f(x))) << i;
    EXPECT_EQ(replays(step.stats()), 0u) << step.explain();
    EXPECT_NE(step.refusal(), "");
  }
}

// Two storages over the same memory.
TEST(CaptureInputs, ThatShareMemoryWithWhatTheStepChanges) {
  at::Tensor state = torch::ones({4});
  auto step = capture([&](at::Tensor x) {
    state.add_(1);
    return x * 2;
  });
  for (int i = 0; i < 8; ++i) step(torch::full({4}, i));
  ASSERT_GT(replays(step.stats()), 2u);
  const at::Tensor same = torch::from_blob(state.data_ptr(), {4});
  EXPECT_EQ(step(same)[0].item<float>(), 20);
}

TEST(CaptureInputs, ThatAreOneTensor) {
  const auto f = [](const at::Tensor& x, at::Tensor y) {
    y.add_(1);
    return x * y;
  };
  auto step = capture(f);
  for (int i = 0; i < 8; ++i) step(torch::ones({3}), torch::ones({3}));
  ASSERT_GT(replays(step.stats()), 2u);
  at::Tensor a = torch::ones({3});
  EXPECT_EQ(step(a, a)[0].item<float>(), 4);
  at::Tensor whole = torch::ones({4});
  EXPECT_EQ(step(whole.slice(0, 0, 3), whole.slice(0, 1, 4))[0].item<float>(), 2);
}

// A replay that is taken back and compared must not trip over bytes between the elements.
TEST(CaptureInputs, WithGapsAreCompared) {
  auto step = capture([](at::Tensor x) { return (x * 2).sum(); }, {.check_every = 2});
  const at::Tensor base = torch::rand({6, 10});
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = base.slice(1, 1, 8, 2).slice(0, 1);
    EXPECT_TRUE(same_bits(step(x), (x * 2).sum())) << i;
  }
  EXPECT_GT(replays(step.stats()), 2u) << step.explain();
}

}  // namespace
}  // namespace overdrive::test
