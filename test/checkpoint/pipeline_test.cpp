// A chain split over devices: the CPU, and the fake accelerator with a checker of its streams.
#include "test/checkpoint/pipeline_fixture.h"

#include <atomic>

namespace overdrive::checkpoint {
namespace {

TEST_F(PipelineTest, HasTheBitsOfTheUnsplitModel) {
  for (const auto& devices : {cpus(3), fakes(3)}) {
    for (const auto checkpointed : {Checkpointed::kAlways, Checkpointed::kExceptLast, Checkpointed::kNever}) {
      for (const int64_t chunks : {1, 2, 3, 7}) {
        for (const bool early : {true, false}) {
          SCOPED_TRACE(c10::str(devices[0], ", ", static_cast<int>(checkpointed), ", ", chunks, ", ", early));
          expect_equal_to_unsplit(
              devices, {.chunks = chunks, .checkpointed = checkpointed, .recompute_before_gradient = early});
        }
        expect_equal_to_unsplit(devices,
                                {.chunks = chunks, .checkpointed = checkpointed, .region = {.ahead = 2}});
      }
    }
  }
}

TEST_F(PipelineTest, AgreesWithTheBatchInOnePiece) {
  for (const auto& [dtype, tolerance] : {std::pair(at::kFloat, 1e-5), std::pair(at::kDouble, 1e-12)}) {
    const Tensor batch = at::randn({8, 6}, dtype);
    const auto devices = fakes(2);
    nn::Sequential whole = model(cpus(4), dtype),
                   split = model({devices[0], devices[0], devices[1], devices[1]}, dtype);
    const Results want = results(whole, batch, [&](const Tensor& t) { return whole->forward(t); });
    const Pipeline pipeline(stages_of(*split, {3, 4}, devices), {.chunks = 4});
    const Results got = results(split, batch, [&](const Tensor& t) { return pipeline.forward(t).cpu(); });
    const auto off = [](const Tensor& a, const Tensor& b) {
      return ((a - b).norm() / b.norm()).template item<double>();
    };
    EXPECT_LE(off(got.output, want.output), tolerance);
    EXPECT_LE(off(got.input_gradient, want.input_gradient), tolerance);
    for (size_t i = 0; i < want.gradients.size(); ++i) {
      EXPECT_LE(off(got.gradients[i], want.gradients[i]), tolerance) << "parameter " << i;
    }
  }
}

// Token numbers in, and a stage that gives class numbers: nothing comes back through either.
TEST_F(PipelineTest, TakesWholeNumbersAndGivesThem) {
  const auto embed = [] {
    torch::manual_seed(2);
    return nn::Sequential(nn::Functional([](const Tensor& t) { return t + 1; }), nn::Embedding(10, 6),
                          nn::Linear(6, 3));
  };
  const Tensor batch = at::arange(8, at::kLong);
  nn::Sequential whole = embed(), split = embed();
  const Pipeline pipeline(stages_of(*split, {1, 1, 1}, cpus(3)),
                          {.chunks = 2, .checkpointed = Checkpointed::kAlways});
  in_micro_batches(whole, batch, 2).square().sum().backward();
  pipeline.forward(batch).square().sum().backward();
  for (size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(split->parameters()[i].grad(), whole->parameters()[i].grad())) << i;
  }
  nn::Sequential classes(nn::Embedding(10, 6), nn::Linear(6, 3),
                         nn::Functional([](const Tensor& t) { return t.argmax(1); }));
  const Pipeline classify(stages_of(*classes, {1, 1, 1}, cpus(3)),
                          {.chunks = 2, .checkpointed = Checkpointed::kAlways});
  EXPECT_TRUE(at::equal(classify.forward(batch), classes->forward(batch)));
}

TEST_F(PipelineTest, DrawsTheRandomNumbersOfTheUnsplitModel) {
  const auto layers = [] {
    torch::manual_seed(2);
    return nn::Sequential(nn::Linear(6, 12), nn::Dropout(0.3), nn::Linear(12, 12), nn::Dropout(0.4),
                          nn::Tanh());
  };
  const Tensor batch = at::randn({6, 6});
  nn::Sequential whole = layers(), split = layers();
  const Results want = results(whole, batch, [&](const Tensor& t) {
    torch::manual_seed(9);
    return in_micro_batches(whole, t, 3);
  });
  const Pipeline pipeline(stages_of(*split, {2, 3}, cpus(2)),
                          {.chunks = 3, .checkpointed = Checkpointed::kAlways});
  const Results got = results(split, batch, [&](const Tensor& t) {
    torch::manual_seed(9);
    return pipeline.forward(t);
  });
  expect_same_bits(got, want);
}

// {stage 0} --> {stage 1}: the gradient of stage 1 holds until stage 0 runs again.
TEST_F(PipelineTest, RunsAStageAgainBeforeItsGradientArrives) {
  std::atomic<bool> again = false;
  bool was_again = false;
  const auto first = [&](const Tensor& t) {
    if (is_recomputing()) again = true;
    return t * 2;
  };
  const auto second = [&](const Tensor& t) {
    const Tensor y = t * 3;
    if (is_recomputing()) {
      y.register_hook([&](const Tensor&) {
        wait_for(again);
        was_again = again;
      });
    }
    return y;
  };
  const Pipeline pipeline({{.layers = {first}, .device = test::fake::device(0), .parameters = {}},
                           {.layers = {second}, .device = test::fake::device(1), .parameters = {}}},
                          {.checkpointed = Checkpointed::kAlways});
  const Tensor leaf = test::device_leaf(0, {2, 3});
  pipeline.forward(leaf).sum().backward();
  EXPECT_TRUE(was_again);
  EXPECT_TRUE(same_bits(leaf.grad().cpu(), at::full({2, 3}, 6.0f)));
}

TEST_F(PipelineTest, CopiesOnStreamsOfTheirOwn) {
  const Tensor leaf = test::device_leaf(0, {4, 3});
  std::mutex mutex;
  std::vector<int> streams;
  test::fake::on_kernel([&](const test::fake::Kernel& kernel) {
    const std::lock_guard lock(mutex);
    if (kernel.op == "aten::copy_" && kernel.device == 0) streams.push_back(kernel.stream);
  });
  const auto twice = [](const Tensor& t) { return t * 2; };
  const Pipeline pipeline({{.layers = {twice}, .device = test::fake::device(0), .parameters = {}},
                           {.layers = {twice}, .device = test::fake::device(1), .parameters = {}}},
                          {.chunks = 2});
  const Tensor y = pipeline.forward(leaf);
  test::fake::on_kernel(nullptr);
  EXPECT_THAT(streams, testing::AllOf(testing::SizeIs(2), testing::Each(testing::Ne(0))));
  y.sum().backward();
  EXPECT_TRUE(same_bits(leaf.grad().cpu(), at::full({4, 3}, 4.0f)));
}

}  // namespace
}  // namespace overdrive::checkpoint
