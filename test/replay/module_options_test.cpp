// Options of LibTorch's own modules that the program changes between two calls: recorded anew, and never stale.
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

namespace nn = torch::nn;

using Made = std::pair<std::shared_ptr<nn::Module>, std::function<at::Tensor(at::Tensor)>>;

// A module with its way through a tensor {4, 6, 8}, and a change of its options.
struct Case {
  const char* name;
  std::function<Made()> make;
  std::function<void(nn::Module&)> change;
};

template <typename Holder>
Made made(Holder holder) {
  return {holder.ptr(), [holder](at::Tensor x) mutable { return holder(x); }};
}

template <typename Loss>
Made made_loss(Loss loss) {
  return {loss.ptr(), [loss](at::Tensor x) mutable { return loss(x, x.detach() * 0.5 + 0.1); }};
}

template <typename Impl>
Impl& as(nn::Module& module) {
  return dynamic_cast<Impl&>(module);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"Dropout", [] { return made(nn::Dropout(0.5)); },
       [](nn::Module& m) { as<nn::DropoutImpl>(m).options.p(0.1); }},
      {"AlphaDropout", [] { return made(nn::AlphaDropout(0.5)); },
       [](nn::Module& m) { as<nn::AlphaDropoutImpl>(m).options = nn::AlphaDropoutOptions(0.2); }},
      {"LeakyReLU", [] { return made(nn::LeakyReLU()); },
       [](nn::Module& m) { as<nn::LeakyReLUImpl>(m).options.negative_slope(0.5); }},
      {"GELU", [] { return made(nn::GELU()); },
       [](nn::Module& m) { as<nn::GELUImpl>(m).options.approximate("tanh"); }},
      {"Hardtanh", [] { return made(nn::Hardtanh()); },
       [](nn::Module& m) { as<nn::HardtanhImpl>(m).options.max_val(0.25); }},
      {"Softmax", [] { return made(nn::Softmax(1)); },
       [](nn::Module& m) { as<nn::SoftmaxImpl>(m).options.dim(2); }},
      {"BatchNorm1d", [] { return made(nn::BatchNorm1d(6)); },
       [](nn::Module& m) { as<nn::BatchNorm1dImpl>(m).options.momentum(0.5); }},
      {"GroupNorm", [] { return made(nn::GroupNorm(2, 6)); },
       [](nn::Module& m) { as<nn::GroupNormImpl>(m).options.num_groups(3).eps(0.1); }},
      {"LayerNorm", [] { return made(nn::LayerNorm(nn::LayerNormOptions({8}).elementwise_affine(false))); },
       [](nn::Module& m) {
         as<nn::LayerNormImpl>(m).options.normalized_shape(std::vector<int64_t>{6, 8});
       }},
      {"Conv1d", [] { return made(nn::Conv1d(6, 6, 3)); },
       [](nn::Module& m) { as<nn::Conv1dImpl>(m).options.dilation(2); }},
      {"MaxPool1d", [] { return made(nn::MaxPool1d(2)); },
       [](nn::Module& m) { as<nn::MaxPool1dImpl>(m).options.kernel_size(3); }},
      {"Upsample",
       [] {
         return made(nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{16}).mode(torch::kNearest)));
       },
       [](nn::Module& m) {
         as<nn::UpsampleImpl>(m).options.size()->at(0) = 12;  // in its memory
       }},
      {"ConstantPad1d", [] { return made(nn::ConstantPad1d(1, 0.5)); },
       [](nn::Module& m) { as<nn::ConstantPad1dImpl>(m).options.value(2.0); }},
      {"SmoothL1Loss", [] { return made_loss(nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(1.0))); },
       [](nn::Module& m) { as<nn::SmoothL1LossImpl>(m).options.beta(0.1); }},
      {"HuberLoss", [] { return made_loss(nn::HuberLoss()); },
       [](nn::Module& m) { as<nn::HuberLossImpl>(m).options.delta(0.1); }},
      {"MSELoss", [] { return made_loss(nn::MSELoss()); },
       [](nn::Module& m) { as<nn::MSELossImpl>(m).options.reduction(torch::kSum); }},
  };
  return all;
}

struct ModuleOptions : testing::TestWithParam<size_t> {};

Training with(const Case& each) {
  auto [module, forward] = each.make();
  nn::Sequential model(nn::Linear(8, 8));
  model->register_module("changed", module);
  return {.model = model.ptr(),
          .optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.05),
          .step =
              [model, forward](const Tensors& inputs) mutable {
                model->zero_grad(true);
                const at::Tensor loss = forward(model[0]->as<nn::Linear>()->forward(inputs[0])).square().mean();
                loss.backward();
                return loss;
              },
          .inputs =
              [](int i) {
                return Tensors{torch::randn({4, 6, 8}) + 0.1 * i};
              }};
}

TEST_P(ModuleOptions, AreReadInEachCall) {
  const Case& each = cases()[GetParam()];
  SideBySide both([&] {
    Training training = with(each);
    auto model = training.model;
    auto optimizer = training.optimizer;
    auto step = training.step;
    training.step = [step, optimizer](const Tensors& inputs) {
      const at::Tensor loss = step(inputs);
      optimizer->step();
      return loss;
    };
    return training;
  });
  ASSERT_EQ(both.run(8), "") << each.name;
  ASSERT_GT(replays(both.step().stats()), 2u) << each.name << both.step().explain();
  const CaptureStats before = both.step().stats();
  EXPECT_EQ(both.run(12,
                     [&](Training& training, int i) {
                       if (i == 2) each.change(*training.model->named_children()["changed"]);
                     }),
            "")
      << each.name;
  const CaptureStats after = both.step().stats();
  EXPECT_EQ(after.recorded - before.recorded, 2u) << each.name << both.step().explain();
  EXPECT_GT(replays(after) - replays(before), 6u) << each.name << both.step().explain();
}

INSTANTIATE_TEST_SUITE_P(All, ModuleOptions, testing::Range<size_t>(0, cases().size()));

// Two values in turn are two programs, and no recording is thrown away.
TEST(ModuleOptionsInTurn, AreTwoPrograms) {
  nn::Dropout dropout(0.5);
  nn::LSTM lstm(nn::LSTMOptions(4, 4).num_layers(2).dropout(0.5));
  auto step = capture([&](at::Tensor x) { return std::get<0>(lstm(dropout(x))).sum(); },
                      {.modules = {dropout.ptr(), lstm.ptr()}});
  for (int i = 0; i < 40; ++i) {
    dropout->options.p(i % 2 == 0 ? 0.0 : 1.0);
    lstm->options_base.dropout(i % 4 < 2 ? 0.0 : 1.0);
    const at::Tensor x = torch::randn({3, 2, 4});
    torch::manual_seed(i);
    const at::Tensor result = step(x);
    torch::manual_seed(i);
    EXPECT_TRUE(same_bits(result, std::get<0>(lstm(dropout(x))).sum().detach())) << i;
  }
  EXPECT_EQ(replays(step.stats()), 24u) << step.explain();
}

}  // namespace
}  // namespace overdrive::test
