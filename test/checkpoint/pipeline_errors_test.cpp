// What a pipeline refuses.
#include "test/checkpoint/pipeline_fixture.h"

namespace overdrive::checkpoint {
namespace {

struct NormedImpl : nn::Module {
  NormedImpl() : norm(register_module("norm", nn::BatchNorm1d(6))) {}
  Tensor forward(const Tensor& t) { return norm->forward(t); }
  nn::BatchNorm1d norm;
};
TORCH_MODULE(Normed);

TEST_F(PipelineTest, RefusesABatchSmallerThanTheChunks) {
  nn::Sequential layers = model(cpus(4));
  const Pipeline pipeline(stages_of(*layers, {3, 4}, cpus(2)), {.chunks = 4});
  EXPECT_THAT(error_of([&] {
                pipeline.forward(at::randn({3, 6}));
              }),
              HasSubstr("a batch of 3 cannot be cut into 4 micro-batches"));
}

TEST_F(PipelineTest, RefusesAParameterOfTwoStages) {
  nn::Linear shared(6, 6);
  nn::Sequential layers(shared, nn::Tanh(), shared);
  EXPECT_THAT(error_of([&] {
                stages_of(*layers, {2, 1}, fakes(2));
              }),
              HasSubstr("stages 0 and 1 share a parameter of sizes [6, 6]"));
  EXPECT_TRUE(shared->weight.is_cpu()) << "nothing was moved";
}

TEST_F(PipelineTest, RefusesAStageOnNoDevice) {
  nn::Sequential layers = model(cpus(4));
  EXPECT_THAT(error_of([&] { stages_of(*layers, {3, 4}, cpus(1)); }), HasSubstr("stage 1 is on no device"));
  EXPECT_THAT(error_of([&] { stages_of(*layers, {3, 3}, cpus(2)); }), HasSubstr("the model has 7"));
  EXPECT_THAT(
      error_of([&] { Pipeline({{.layers = {}, .device = at::Device(test::fake::kType), .parameters = {}}}); }),
      HasSubstr("does not say on which one"));
}

TEST_F(PipelineTest, SaysWhichStageFailedToRunAgain) {
  const auto other_shape = [](const Tensor& t) { return is_recomputing() ? t.slice(1, 1) : t * 1; };
  const Pipeline pipeline({{.layers = {other_shape}, .device = at::kCPU, .parameters = {}}},
                          {.chunks = 2, .region = {.name = "net"}});
  const Tensor loss = pipeline.forward(at::ones({4, 3}).requires_grad_()).sum();
  EXPECT_THAT(error_of([&] { loss.backward(); }), HasSubstr("(net, stage 0) gave another output 0"));
}

TEST_F(PipelineTest, RefusesWhatARegionRefuses) {
  nn::Sequential layers = model(cpus(4));
  const Tensor batch = at::randn({4, 6}).requires_grad_();
  const auto loss = [&](Checkpointed checkpointed) {
    const Pipeline pipeline(stages_of(*layers, {3, 4}, cpus(2)), {.chunks = 2, .checkpointed = checkpointed});
    return pipeline.forward(batch).sum();
  };
  EXPECT_THAT(error_of([&] { torch::autograd::grad({loss(Checkpointed::kExceptLast)}, {batch}); }),
              HasSubstr("PipelineOptions::checkpointed = kNever"));
  EXPECT_TRUE(torch::autograd::grad({loss(Checkpointed::kNever)}, {batch})[0].defined());
}

TEST_F(PipelineTest, RefusesBatchNormInTraining) {
  nn::Sequential layers(nn::Linear(6, 6), Normed());
  const Pipeline pipeline(stages_of(*layers, {1, 1}, cpus(2)), {.chunks = 2});
  const Tensor batch = at::randn({4, 6});
  EXPECT_THAT(
      error_of([&] { pipeline.forward(batch); }),
      testing::AllOf(HasSubstr("in stage 1, module 1.norm (torch::nn::BatchNorm1dImpl) is in training mode"),
                     HasSubstr("Call eval()")));
  layers->eval();
  EXPECT_TRUE(same_bits(pipeline.forward(batch).detach(), in_micro_batches(layers, batch, 2).detach()));
  layers->train();
  const Pipeline unsplit(stages_of(*layers, {1, 1}, cpus(2)), {.chunks = 1});
  EXPECT_EQ(error_of([&] { unsplit.forward(batch); }), "(no error)") << "one micro-batch is the batch";
}

}  // namespace
}  // namespace overdrive::checkpoint
