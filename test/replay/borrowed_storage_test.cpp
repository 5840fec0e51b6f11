// Operators that allocate their results themselves: a replay lends them the memory that it has for these, and
// copies nothing. Where they get other memory, the results are copied, with the same bits.
#include "test/replay/parts_fixture.h"

#include <c10/core/CPUAllocator.h>

namespace overdrive::test {
namespace {

using testing::HasSubstr;

// Two layers whose weights have one size, so that allocations of a backward are told apart by their turn.
struct TwoLayers final : torch::nn::Module {
  TwoLayers() {
    register_module("lstm", lstm);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(std::get<0>(lstm->forward(x))); }
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(16, 16).num_layers(2).batch_first(true)};
  torch::nn::Linear out{16, 3};
};

Training two_layers() {
  auto net = std::make_shared<TwoLayers>();
  Training training{.model = net, .optimizer = adam()(net->parameters())};
  training.step = [net, optimizer = training.optimizer](const Tensors& inputs) {
    optimizer->zero_grad();
    at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
    loss.backward();
    optimizer->step();
    return loss;
  };
  training.inputs = [](int i) { return batch_of(i, {4, 6, 16}, {4, 6, 3}); };
  return training;
}

// Layer norm's backward has an out= form that LibTorch generates, on every processor.
Training normed() {
  using namespace torch::nn;
  return train_sequential(Sequential(Linear(8, 16), LayerNorm(LayerNormOptions({16})), Linear(16, 4)), adam(),
                          {5, 8}, {5, 4});
}

bool is_borrowed(CapturedStep& step, const std::string& name) {
  std::istringstream lines(step.explain());
  for (std::string line; std::getline(lines, line);) {
    if (line.find(name) != std::string::npos && line.find("into borrowed storage") != std::string::npos)
      return true;
  }
  return false;
}

TEST(BorrowedStorage, AResultIsMadeWhereTheReplayHasItsMemory) {
  SideBySide both(normed);
  EXPECT_EQ(both.run(12), "") << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 7u);
  EXPECT_TRUE(is_borrowed(both.step(), "native_layer_norm_backward")) << both.step().explain();
}

TEST(BorrowedStorage, ALayerOfOneDnnWithResultsOfOneSize) {
  SideBySide both(two_layers);
  EXPECT_EQ(both.run(12), "") << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 7u);
  if (both.step().explain().find("mkldnn_rnn_layer_backward") == std::string::npos)
    GTEST_SKIP() << "LibTorch has no layer operator here.";
  EXPECT_TRUE(is_borrowed(both.step(), "mkldnn_rnn_layer_backward")) << both.step().explain();
}

// Another allocator stands in front from one call to a later one.
class Plain final : public c10::Allocator {
 public:
  explicit Plain(c10::Allocator& below) : below_(below) {}
  c10::DataPtr allocate(size_t bytes) override {
    ++asked;
    return below_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return below_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { below_.copy_data(to, from, bytes); }
  int asked = 0;

 private:
  c10::Allocator& below_;
};

TEST(BorrowedStorage, AnotherAllocatorInFrontGetsResultsThatAreCopied) {
  SideBySide both(normed);
  EXPECT_EQ(both.run(8), "");
  ASSERT_TRUE(is_borrowed(both.step(), "native_layer_norm_backward"));
  c10::Allocator* const before = c10::GetCPUAllocator();
  static Plain* const plain = new Plain(*before);  // tensors remember it
  c10::SetCPUAllocator(plain);
  EXPECT_EQ(both.run(4), "") << both.step().explain();
  c10::SetCPUAllocator(before);
  EXPECT_GT(plain->asked, 0);
  EXPECT_EQ(both.run(4), "") << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 12u);
}

PartProgram part_of_two_layers(int64_t width) {
  torch::nn::Sequential net(torch::nn::Linear(8, width),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                            torch::nn::Linear(width, 4));
  return part_of_net(net, {5, 8}, {5, 4});
}

TEST(BorrowedStorage, LargeGradientsOfAPartAreMadeInTheMemoryThatTheParameterKeeps) {
  // 64 KiB for each gradient of the norm.
  PartBesideEager both([] { return part_of_two_layers(16384); });
  EXPECT_EQ(both.run(10), "") << both.part().explain();
  EXPECT_GE(both.part().stats().backwards, 5u);
  EXPECT_TRUE(is_borrowed(both.part(), "native_layer_norm_backward")) << both.part().explain();
}

TEST(BorrowedStorage, GradientsOfTwoCallsOfAPartHaveMemoryOfTheirOwn) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({16384}));
  CapturedStep part([norm](const Tensors& x) mutable { return Tensors{norm->forward(x[0])}; },
                    {.modules = {norm.ptr()}}, /*is_part=*/true);
  Tensors kept;
  for (int i = 0; i < 8; ++i) {
    norm->zero_grad();
    part.call({torch::full({2, 16384}, 1.0 + i) * torch::arange(16384)}).at(0).sum().backward();
    kept.push_back(norm->weight.grad());
  }
  ASSERT_GT(part.stats().backwards, 3u) << part.explain();
  for (int i = 0; i < 8; ++i) {
    at::Tensor x = torch::full({2, 16384}, 1.0 + i) * torch::arange(16384);
    norm->zero_grad();
    norm->forward(x).sum().backward();
    EXPECT_TRUE(same_bits(kept[i], norm->weight.grad())) << i;
  }
}

}  // namespace
}  // namespace overdrive::test
