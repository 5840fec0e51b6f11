// Parameters, and views of them, are kept and not packed.
#include "test/hooks/hooks_fixture.h"

#include <ATen/autocast_mode.h>
#include <torch/nn.h>

namespace overdrive::hooks {
namespace {

using testing::IsEmpty;

// The gradients of `leaves` under hooks and without, which must be the same bits.
template <typename Forward>
void expect_same_gradients(const HooksPtr& hooks, std::vector<Tensor> leaves, const Forward& forward,
                           HookOptions options = {}) {
  const auto gradients = [&](const HooksPtr& with) {
    torch::manual_seed(3);
    for (Tensor& leaf : leaves) leaf.mutable_grad().reset();
    Tensor loss;
    {
      const ScopedHooks scope(with, options);
      loss = forward().sum();
    }
    loss.backward();
    std::vector<Tensor> result;
    for (Tensor& leaf : leaves) result.push_back(leaf.grad().defined() ? leaf.grad().clone() : Tensor());
    return result;
  };
  const auto expected = gradients(nullptr), got = gradients(hooks);
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(expected[i].defined(), got[i].defined());
    if (got[i].defined()) {
      EXPECT_TRUE(same_bits(got[i], expected[i])) << "leaf " << i;
    }
  }
}

class Parameters : public HooksTest {
 protected:
  template <typename Forward>
  void expect_skipped(std::vector<Tensor> leaves, const Forward& forward) {
    expect_same_gradients(copying_, leaves, forward);
    EXPECT_THAT(copying_->saves, testing::Not(IsEmpty())) << "nothing was packed at all";
    for (const SaveInfo& save : copying_->saves) EXPECT_FALSE(save.parameter);
    const auto with = std::make_shared<CopyingHooks>();
    expect_same_gradients(with, leaves, forward, {.skip_parameters = false});
    EXPECT_GT(with->saves.size(), copying_->saves.size()) << "there was no parameter to skip";
    EXPECT_THAT(with->saves, testing::Contains(testing::Field(&SaveInfo::parameter, true)));
  }
  const Tensor x_ = at::randn({2, 4});
};

TEST_F(Parameters, OfLinearAreSkipped) {
  torch::nn::Linear first(4, 5), second(5, 3);
  expect_skipped(first->parameters(), [&] { return second(first(x_).relu()); });
}

TEST_F(Parameters, OfConvAreSkipped) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(1, 2, 3));
  const Tensor image = at::randn({1, 1, 6, 6});
  expect_skipped(conv->parameters(), [&] { return conv(image).exp(); });
}

TEST_F(Parameters, OfLstmAreSkipped) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3).num_layers(2));
  const Tensor sequence = at::randn({5, 2, 4});
  expect_skipped(lstm->parameters(), [&] { return std::get<0>(lstm(sequence)); });
}

TEST_F(Parameters, OfEmbeddingAreNotEvenSaved) {
  torch::nn::Embedding embedding(10, 4);
  torch::nn::Linear linear(4, 2);
  const Tensor words = at::tensor({1, 7, 1});
  auto leaves = linear->parameters();
  leaves.push_back(embedding->weight);
  expect_skipped(leaves, [&] { return linear(embedding(words)); });
}

TEST_F(Parameters, OfAttentionAreSkipped) {
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(4, 2));
  const Tensor query = at::randn({3, 2, 4});
  expect_skipped(attention->parameters(), [&] { return std::get<0>(attention(query, query, query)); });
}

TEST_F(Parameters, CastCopiesUnderAutocastArePacked) {
  torch::nn::Linear linear(4, 3);
  Tensor out;
  {
    const ScopedHooks scope(copying_);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    out = linear(x_);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  for (const SaveInfo& save : copying_->saves) EXPECT_EQ(save.dtype, at::kBFloat16);
  EXPECT_THAT(copying_->saves, testing::Not(IsEmpty()));
  out.sum().backward();
  EXPECT_TRUE(linear->weight.grad().defined());
}

}  // namespace
}  // namespace overdrive::hooks
