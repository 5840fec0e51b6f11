// Models and ways of training that a captured step is for: every bit as in eager.
#include "replay/clip_grad_norm.h"
#include "test/replay/replay_fixture.h"

#include <torch/csrc/autograd/autograd.h>

namespace overdrive::test {
namespace {

using namespace torch::nn;

void train(const char* name, const SideBySide::Make& make, int steps = 200) {
  SideBySide both(make);
  EXPECT_EQ(both.run(steps), "") << name << both.step().explain();
  EXPECT_EQ(both.step().refusal(), "") << name;
  EXPECT_GT(replays(both.step().stats()), static_cast<uint64_t>(steps) - 8) << name << both.step().explain();
}

// A step that is given by its loss.
template <typename Module>
Training with_loss(Module module, std::function<at::Tensor(Module&, const Tensors&)> loss_of,
                   std::function<Tensors(int)> inputs, const MakeOptimizer& optimizer = sgd()) {
  Training training{
      .model = module.ptr(), .optimizer = optimizer(module->parameters()), .inputs = std::move(inputs)};
  auto* raw = training.optimizer.get();
  training.step = [module, raw, loss_of](const Tensors& given) mutable {
    raw->zero_grad();
    at::Tensor loss = loss_of(module, given);
    loss.backward();
    raw->step();
    return loss;
  };
  return training;
}

Tensors classes(int i) {
  Tensors batch = batch_of(i, {4, 1, 8, 8}, {4});
  batch[1] = (torch::arange(4) + i) % 3;
  return batch;
}

TEST(CaptureModels, DropoutDrawsTheSameNumbers) {
  train("dropout", [] {
    return train_sequential(Sequential(Linear(8, 16), Dropout(0.3), Tanh(), Linear(16, 4)), adam(), {5, 8},
                            {5, 4});
  });
}

TEST(CaptureModels, RandomNumbersInTheStep) {
  train("rand", [] {
    return with_loss<Linear>(
        Linear(8, 4),
        [](Linear& net, const Tensors& given) {
          at::Tensor noisy = given[0] + 0.1 * torch::randn({5, 8}) * torch::rand({8});
          return torch::mse_loss(net->forward(noisy), given[1]) * torch::rand({}).add_(1);
        },
        [](int i) {
          return batch_of(i, {5, 8}, {5, 4});
        });
  });
}

TEST(CaptureModels, BatchNormKeepsItsStatistics) {
  train("batch norm", [] {
    return train_sequential(Sequential(Linear(8, 16), BatchNorm1d(16), ReLU(), Linear(16, 4)), sgd(), {5, 8},
                            {5, 4});
  });
}

TEST(CaptureModels, Convolutions) {
  train("convolutions", [] {
    return with_loss<Sequential>(
        Sequential(Conv2d(Conv2dOptions(1, 4, 3).padding(1)), BatchNorm2d(4), ReLU(), MaxPool2d(2),
                   Conv2d(4, 6, 3), GELU(), AvgPool2d(2), Flatten(), Linear(6, 3)),
        [](Sequential& net, const Tensors& given) {
          return torch::cross_entropy_loss(net->forward(given[0]), given[1]);
        },
        classes);
  });
}

struct WordsImpl : Module {
  Embedding words{12, 8};
  LSTM lstm{LSTMOptions(8, 8).batch_first(true)};
  WordsImpl() {
    register_module("words", words);
    register_module("lstm", lstm);
  }
};
TORCH_MODULE(Words);

TEST(CaptureModels, EmbeddingAndLstm) {
  train("lstm", [] {
    return with_loss<Words>(
        Words(),
        [](Words& net, const Tensors& given) {
          return std::get<0>(net->lstm->forward(net->words->forward(given[0]))).square().mean();
        },
        [](int i) {
          return Tensors{(torch::arange(12).reshape({3, 4}) + i) % 12};
        },
        adam());
  });
}

TEST(CaptureModels, Attention) {
  train("attention", [] {
    return with_loss<TransformerEncoderLayer>(
        TransformerEncoderLayer(TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1)),
        [](TransformerEncoderLayer& net, const Tensors& given) {
          return torch::mse_loss(net->forward(given[0]), given[1]);
        },
        [](int i) {
          return batch_of(i, {6, 2, 16}, {6, 2, 16});
        },
        adam());
  });
  train("scaled dot product", [] {
    return with_loss<Linear>(
        Linear(8, 24),
        [](Linear& net, const Tensors& given) {
          const auto qkv = net->forward(given[0]).view({2, 5, 3, 2, 4}).permute({2, 0, 3, 1, 4});
          return torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]).square().mean();
        },
        [](int i) {
          return batch_of(i, {2, 5, 8}, {1});
        });
  });
}

TEST(CaptureModels, DoubleBackward) {
  train("gradient penalty", [] {
    return with_loss<Sequential>(
        Sequential(Linear(8, 16), Tanh(), Linear(16, 1)),
        [](Sequential& net, const Tensors& given) {
          at::Tensor x = given[0].detach().requires_grad_();
          at::Tensor y = net->forward(x);
          at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
          return ((slope.square().sum(1) + 1e-12).sqrt() - 1).square().mean() + y.mean();
        },
        [](int i) {
          return batch_of(i, {5, 8}, {1});
        });
  });
}

TEST(CaptureModels, GradientClipping) {
  for (const bool by_norm : {false, true}) {
    train("clipping", [&] {
      Training training = small_mlp(adam());
      auto net = std::dynamic_pointer_cast<SequentialImpl>(training.model);
      auto* optimizer = training.optimizer.get();
      training.step = [=](const Tensors& given) {
        optimizer->zero_grad();
        at::Tensor loss = torch::mse_loss(net->forward(given[0]), given[1]);
        loss.backward();
        const torch::NoGradGuard no_grad;
        if (!by_norm) {
          utils::clip_grad_value_(net->parameters(), 0.01);
        } else {
          overdrive::clip_grad_norm_(net->parameters(), 0.05);
        }
        optimizer->step();
        return loss;
      };
      return training;
    });
  }
}

TEST(CaptureModels, OurClippingHasTheBitsOfLibTorchs) {
  for (const double type : {0., 1., 2., 3., std::numeric_limits<double>::infinity()}) {
    for (const int count : {0, 1, 3}) {
      const auto gradients = [&](const auto& clip) {
        Tensors parameters{torch::ones({2})};
        for (int i = 0; i < count; ++i) {
          parameters.push_back(batch_of(i, {3, 5}, {1})[0].requires_grad_());
          parameters.back().mutable_grad() = batch_of(i + 7, {3, 5}, {1})[0];
        }
        Tensors result{at::scalar_tensor(clip(parameters), at::kDouble)};
        for (const at::Tensor& parameter : parameters) result.push_back(parameter.grad());
        return result;
      };
      const Tensors ours = gradients([&](const Tensors& given) {
        return overdrive::clip_grad_norm_(given, 0.5, type).template item<double>();
      });
      const Tensors theirs =
          gradients([&](const Tensors& given) { return utils::clip_grad_norm_(given, 0.5, type); });
      for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(same_bits(ours[i], theirs[i])) << type << " " << i;
    }
  }
}

TEST(CaptureModels, HooksThatAreFunctionsOfTensors) {
  train("hooks", [] {
    return with_loss<Linear>(
        Linear(8, 4),
        [](Linear& net, const Tensors& given) {
          at::Tensor h = net->forward(given[0]);
          h.register_hook([](const at::Tensor& g) { return g * 0.5; });
          return torch::mse_loss(h.tanh(), given[1]);
        },
        [](int i) {
          return batch_of(i, {5, 8}, {5, 4});
        });
  });
}

TEST(CaptureModels, InPlaceViewsSortsAndMasks) {
  train("operators", [] {
    return with_loss<Linear>(
        Linear(8, 8),
        [](Linear& net, const Tensors& given) {
          at::Tensor h = net->forward(given[0]).relu_().cumsum(1);
          const at::Tensor sorted = std::get<0>(h.sort(1));
          at::Tensor all = torch::where(sorted > 0.5, sorted, sorted * 0.1) + std::get<0>(sorted.max(1, true)) +
                           sorted.logsumexp(1, true) + torch::softmax(sorted, 1);
          at::Tensor copy = all.clone();
          copy.narrow(1, 0, 3).mul_(2);
          copy.t()[0].add_(1);
          return (torch::cat({copy, all}, 1).chunk(4, 1)[2] * given[1]).square().mean();
        },
        [](int i) {
          return batch_of(i, {5, 8}, {5, 4});
        });
  });
}

TEST(CaptureModels, StateThatIsCopied) {
  train("state", [] {
    Linear cell(8, 8);
    at::Tensor h = torch::ones({5, 8});
    Training training = with_loss<Linear>(
        cell,
        [h](Linear& net, const Tensors& given) mutable {
          at::Tensor next = torch::tanh(net->forward(h.clone()) + given[0]);
          const at::Tensor loss = (next - given[1]).square().mean();
          h.copy_(next.detach());
          return loss;
        },
        [](int i) {
          return batch_of(i, {5, 8}, {5, 8});
        });
    training.state = {h};
    return training;
  });
}

TEST(CaptureModels, OneLossForTwoThreadsOfKernels) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  train(
      "large",
      [] {
        return train_sequential(Sequential(Linear(64, 512), ReLU(), Linear(512, 64)), adam(), {128, 64},
                                {128, 64});
      },
      12);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace overdrive::test
