// A step that is called for long: its memory, its bits, and trainings that are saved, loaded and resumed in the
// middle. OVERDRIVE_TEST_REPLAYS makes the longest run longer.
#include "bench/support/tensor_bytes.h"
#include "test/replay/replay_fixture.h"
#include "test/support/number_of_environment.h"
#include "test/support/sanitized.h"

#include <torch/serialize.h>

#include <malloc.h>
#include <sstream>

namespace overdrive::test {
namespace {

TEST(CaptureLasting, MemoryDoesNotGrow) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's allocator does not count";
  SideBySide both([] {
    return train_sequential(torch::nn::Sequential(torch::nn::Linear(4, 2)), sgd(), {3, 4}, {3, 2});
  });
  ASSERT_EQ(both.run(10), "");
  const Tensors inputs = both.captured().inputs(0);
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) both.step().call(inputs);
    return mallinfo2().uordblks;
  };
  const auto replayed = replays(both.step().stats());
  const size_t before = calls(1'000), after = calls(100'000);
  EXPECT_EQ(replays(both.step().stats()), replayed + 101'000);
  EXPECT_LE(after, before + 4'096);
}

TEST(CaptureLasting, MemoryIsThatOfAnEagerCall) {
  SideBySide both([] {
    using namespace torch::nn;
    return train_sequential(Sequential(Linear(64, 128), Tanh(), Linear(128, 128), ReLU(), Linear(128, 32)),
                            sgd(), {32, 64}, {32, 32});
  });
  ASSERT_EQ(both.run(8), "");
  const Tensors inputs = both.eager().inputs(0);
  // Before the call, so that the gradients of the call before are not counted as given back.
  both.eager().optimizer->zero_grad();
  const int64_t peak = bench::TensorBytes::peak_of([&] { both.eager().step(inputs); });
  const std::string text = both.step().explain();
  size_t arena = 0, kept = 0;
  ASSERT_EQ(
      std::sscanf(text.c_str() + text.find("arena "), "arena %zu bytes, kept after a call %zu", &arena, &kept),
      2)
      << text;
  EXPECT_LE(static_cast<double>(arena + kept), 1.1 * static_cast<double>(peak));
  EXPECT_GT(arena, 0u);
}

TEST(CaptureLasting, TrainingsThatAreLoadedInTheMiddle) {
  std::map<Training*, std::string> models, optimizers;
  SideBySide both([] { return small_mlp(adam()); });
  const auto save = [&](Training& training, int i) {
    if (i != 10) return;
    std::ostringstream model, optimizer;
    torch::serialize::OutputArchive of_model, of_optimizer;
    training.model->save(of_model);
    of_model.save_to(model);
    training.optimizer->save(of_optimizer);
    of_optimizer.save_to(optimizer);
    models[&training] = model.str();
    optimizers[&training] = optimizer.str();
  };
  const auto load = [&](Training& training, int i) {
    if (i != 5) return;
    std::istringstream model(models[&training]), optimizer(optimizers[&training]);
    torch::serialize::InputArchive of_model, of_optimizer;
    of_model.load_from(model);
    training.model->load(of_model);
    of_optimizer.load_from(optimizer);
    training.optimizer->load(of_optimizer);
  };
  EXPECT_EQ(both.run(20, save), "");
  const uint64_t replayed = replays(both.step().stats());
  EXPECT_EQ(both.run(30, load), "") << both.step().explain();
  EXPECT_GT(replays(both.step().stats()), replayed + 20) << both.step().explain();
  EXPECT_GE(both.step().stats().outdated, 1u);
}

// Sixteen batches in turn; eager steps are compared after a quarter, a half and the whole.
void expect_same_for_long(const SideBySide::Make& make) {
  SideBySide both(make);
  ASSERT_EQ(both.run(16), "") << both.step().explain();
  const auto replays = number_of_environment("OVERDRIVE_TEST_REPLAYS", 4'000);
  std::vector<Tensors> batches;
  for (int i = 0; i < 16; ++i) batches.push_back(both.eager().inputs(i));
  const uint64_t before = test::replays(both.step().stats());
  uint64_t done = 0;
  size_t memory = 0;
  for (const auto part : {4, 4, 2}) {
    const auto count = replays / static_cast<uint64_t>(part);
    both.eager_alone([&] {
      for (uint64_t i = 0; i < count; ++i) both.eager().step(batches[i % batches.size()]);
    });
    both.captured_alone([&] {
      for (uint64_t i = 0; i < count; ++i) both.step().call(batches[i % batches.size()]);
    });
    done += count;
    ASSERT_EQ(both.difference(), "") << "after " << done << " replays";
    if (memory == 0) memory = mallinfo2().uordblks;
  }
  EXPECT_EQ(test::replays(both.step().stats()), before + done);
  if (!sanitized()) {
    EXPECT_LE(mallinfo2().uordblks, memory + 65'536);
  }
}

// So small that ten million of its replays, and as many eager steps, take some minutes.
TEST(CaptureLasting, ManyReplaysOfALinearLayer) {
  expect_same_for_long([] {
    return train_sequential(torch::nn::Sequential(torch::nn::Linear(4, 2)), sgd(), {3, 4}, {3, 2});
  });
}

TEST(CaptureLasting, ManyReplaysOfAnMlpWithAdam) {
  expect_same_for_long([] { return small_mlp(adam()); });
}

TEST(CaptureLasting, ManyReplaysWithRandomNumbersAndBatchNorm) {
  expect_same_for_long([] {
    using namespace torch::nn;
    return train_sequential(Sequential(Linear(6, 8), BatchNorm1d(8), ReLU(), Dropout(0.3), Linear(8, 2)), sgd(),
                            {5, 6}, {5, 2});
  });
}

// The next epoch begins after a batch that is smaller.
TEST(CaptureLasting, ALastBatchThatIsSmaller) {
  SideBySide both([] {
    Training training = small_mlp(adam());
    training.inputs = [](int i) {
      const int64_t rows = i % 10 == 9 ? 2 : 5;
      return batch_of(i, {rows, 8}, {rows, 4});
    };
    return training;
  });
  EXPECT_EQ(both.run(80), "") << both.step().explain();
  // Four eager calls of each size.
  EXPECT_EQ(replays(both.step().stats()), 72u) << both.step().explain();
}

}  // namespace
}  // namespace overdrive::test
