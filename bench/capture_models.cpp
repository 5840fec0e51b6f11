#include "bench/capture_models.h"

namespace overdrive::bench {

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensor parameter(at::IntArrayRef sizes, double scale) {
  return (torch::randn(sizes) * scale).set_requires_grad(true);
}

CaptureModel with_sgd(CaptureModel model) {
  model.optimizer = std::make_shared<torch::optim::SGD>(model.parameters, torch::optim::SGDOptions(1e-3));
  return model;
}

// Weights and biases of dense layers of these widths.
Tensors dense(const std::vector<int64_t>& widths) {
  Tensors result;
  for (size_t i = 1; i < widths.size(); ++i) {
    result.push_back(parameter({widths[i], widths[i - 1]}, 1 / std::sqrt(static_cast<double>(widths[i - 1]))));
    result.push_back(torch::zeros({widths[i]}).set_requires_grad(true));
  }
  return result;
}

Tensor run_dense(const Tensors& weights, Tensor x, const std::function<Tensor(const Tensor&)>& activation) {
  for (size_t i = 0; i < weights.size(); i += 2) {
    x = torch::linear(x, weights[i], weights[i + 1]);
    if (i + 2 < weights.size()) x = activation(x);
  }
  return x;
}

Tensor tanh_of(const Tensor& x) { return torch::tanh(x); }

CaptureModel mlp(int64_t width, int64_t batch) {
  CaptureModel model{.parameters = dense({width, width, width, width}),
                     .inputs = {torch::randn({batch, width}), torch::randn({batch, width})}};
  model.loss_of = [p = model.parameters](const Tensors& in) {
    return torch::mse_loss(run_dense(p, in[0], tanh_of), in[1]);
  };
  return with_sgd(model);
}

CaptureModel mlp_adam() {
  CaptureModel model = mlp(64, 32);
  model.optimizer = std::make_shared<torch::optim::Adam>(model.parameters, torch::optim::AdamOptions(1e-3));
  return model;
}

// A cell that is written out, over a whole sequence.
CaptureModel lstm(int64_t hidden, int64_t batch, int64_t steps) {
  CaptureModel model{.parameters = {parameter({4 * hidden, hidden}, 0.2), parameter({4 * hidden, hidden}, 0.2),
                                    torch::zeros({4 * hidden}).set_requires_grad(true)},
                     .inputs = {torch::randn({steps, batch, hidden}), torch::randn({batch, hidden})}};
  model.loss_of = [p = model.parameters](const Tensors& in) {
    Tensor h = torch::zeros({in[0].size(1), p[1].size(1)}), c = torch::zeros_like(h);
    for (int64_t t = 0; t < in[0].size(0); ++t) {
      const auto gates = (torch::linear(in[0].select(0, t), p[0], p[2]) + torch::linear(h, p[1])).chunk(4, 1);
      c = torch::sigmoid(gates[1]) * c + torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
      h = torch::sigmoid(gates[3]) * torch::tanh(c);
    }
    return torch::mse_loss(h, in[1]);
  };
  return with_sgd(model);
}

// The same, one cell above the other.
CaptureModel two_layers(int64_t hidden, int64_t batch, int64_t steps) {
  CaptureModel model{.parameters = {},
                     .inputs = {torch::randn({steps, batch, hidden}), torch::randn({batch, hidden})}};
  for (int layer = 0; layer < 2; ++layer) {
    model.parameters.push_back(parameter({4 * hidden, hidden}, 0.2));
    model.parameters.push_back(parameter({4 * hidden, hidden}, 0.2));
    model.parameters.push_back(torch::zeros({4 * hidden}).set_requires_grad(true));
  }
  model.loss_of = [p = model.parameters](const Tensors& in) {
    Tensors sequence = in[0].unbind(0);
    for (size_t layer = 0; layer < p.size(); layer += 3) {
      Tensor h = torch::zeros({in[0].size(1), p[1].size(1)}), c = torch::zeros_like(h);
      for (Tensor& x : sequence) {
        const auto gates =
            (torch::linear(x, p[layer], p[layer + 2]) + torch::linear(h, p[layer + 1])).chunk(4, 1);
        c = torch::sigmoid(gates[1]) * c + torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
        x = h = torch::sigmoid(gates[3]) * torch::tanh(c);
      }
    }
    return torch::mse_loss(sequence.back(), in[1]);
  };
  return with_sgd(model);
}

// Nets that see the same input and do not know each other.
CaptureModel nets(const std::vector<int64_t>& widths, int count, int64_t batch) {
  CaptureModel model{.parameters = {},
                     .inputs = {torch::randn({batch, widths.front()}), torch::randn({batch, widths.back()})}};
  std::vector<Tensors> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(dense(widths));
    model.parameters.insert(model.parameters.end(), all.back().begin(), all.back().end());
  }
  model.loss_of = [all](const Tensors& in) {
    Tensor loss;
    for (const Tensors& each : all) {
      const Tensor own = torch::mse_loss(run_dense(each, in[0], tanh_of), in[1]);
      loss = loss.defined() ? loss + own : own;
    }
    return loss;
  };
  return with_sgd(model);
}

// As in SAC and TD3.
CaptureModel twin_critics() {
  CaptureModel model = nets({20, 256, 256, 1}, 2, 256);
  model.optimizer = std::make_shared<torch::optim::Adam>(model.parameters, torch::optim::AdamOptions(1e-3));
  return model;
}

// Second derivatives of a network with respect to its input, as for a differential equation.
CaptureModel pinn() {
  CaptureModel model{.parameters = dense({1, 32, 32, 32, 1}),
                     .inputs = {torch::rand({256, 1}), torch::randn({256, 1})}};
  model.loss_of = [p = model.parameters](const Tensors& in) {
    const Tensor x = in[0].detach().requires_grad_();
    const auto slope = [&](const Tensor& y) {
      return torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    };
    return (slope(slope(run_dense(p, x, tanh_of))) - in[1]).square().mean();
  };
  return with_sgd(model);
}

// The critic of a Wasserstein network, with its penalty on gradients.
CaptureModel wgan() {
  CaptureModel model{.parameters = dense({2, 64, 64, 64, 1}),
                     .inputs = {torch::randn({64, 2}), torch::randn({64, 2}), torch::rand({64, 1})}};
  model.loss_of = [p = model.parameters](const Tensors& in) {
    const auto critic = [&](const Tensor& x) {
      return run_dense(p, x, [](const Tensor& h) { return torch::leaky_relu(h, 0.2); });
    };
    const Tensor between = (in[2] * in[0] + (1 - in[2]) * in[1]).detach().requires_grad_();
    const Tensor slope = torch::autograd::grad({critic(between).sum()}, {between}, {}, true, true)[0];
    const Tensor penalty = ((slope.square().sum(1) + 1e-12).sqrt() - 1).square().mean();
    return critic(in[1]).mean() - critic(in[0]).mean() + 10 * penalty;
  };
  return with_sgd(model);
}

// What an actor of the trainer rl_many_small learns from one move; the move is an input here.
CaptureModel actor_critic() {
  constexpr int64_t kSeen = 15, kHidden = 32, kActions = 3;
  CaptureModel model{.parameters = dense({kSeen, kHidden}),
                     .inputs = {torch::randn({1, kSeen}), torch::eye(kActions).narrow(0, 1, 1).clone(),
                                torch::full({1, 1}, 0.5)}};
  for (const int64_t width : {kActions, int64_t{1}}) {
    for (const Tensor& each : dense({kHidden, width})) model.parameters.push_back(each);
  }
  model.loss_of = [p = model.parameters](const Tensors& in) {
    const Tensor hidden = torch::tanh(torch::linear(in[0], p[0], p[1]));
    const Tensor log_chances = torch::log_softmax(torch::linear(hidden, p[2], p[3]), 1);
    const Tensor surprise = in[2] - torch::linear(hidden, p[4], p[5]);
    const Tensor entropy = -(log_chances.exp() * log_chances).sum();
    return surprise.pow(2).sum() - (surprise.detach() * (log_chances * in[1]).sum(1, true)).sum() -
           0.02 * entropy;
  };
  model.optimizer = std::make_shared<torch::optim::Adam>(model.parameters, torch::optim::AdamOptions(5e-3));
  return model;
}

CaptureModel transformer() {
  constexpr int64_t kWidth = 64, kHeads = 4, kLength = 64, kBatch = 4, kLayers = 4, kWords = 64;
  CaptureModel model{
      .parameters = {parameter({kWords, kWidth}, 0.1), parameter({kLength, kWidth}, 0.1)},
      .inputs = {torch::randint(kWords, {kBatch, kLength}), torch::randint(kWords, {kBatch * kLength}),
                 torch::full({kLength, kLength}, -1e9).triu(1)}};
  const auto norm = [&] {
    model.parameters.push_back(torch::ones({kWidth}).set_requires_grad(true));
    model.parameters.push_back(torch::zeros({kWidth}).set_requires_grad(true));
  };
  const auto layer = [&](int64_t from, int64_t to) {
    for (const Tensor& each : dense({from, to})) model.parameters.push_back(each);
  };
  for (int64_t i = 0; i < kLayers; ++i) {
    norm(), layer(kWidth, 3 * kWidth), layer(kWidth, kWidth);
    norm(), layer(kWidth, 4 * kWidth), layer(4 * kWidth, kWidth);
  }
  norm(), layer(kWidth, kWords);
  model.loss_of = [p = model.parameters](const Tensors& in) {
    size_t next = 2;
    const auto normed = [&](const Tensor& x) {
      next += 2;
      return torch::layer_norm(x, {kWidth}, p[next - 2], p[next - 1]);
    };
    const auto linear = [&](const Tensor& x) {
      next += 2;
      return torch::linear(x, p[next - 2], p[next - 1]);
    };
    Tensor h = torch::embedding(p[0], in[0]) + p[1];
    for (int64_t i = 0; i < kLayers; ++i) {
      const Tensor qkv =
          linear(normed(h)).view({kBatch, kLength, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
      const Tensor weights = torch::softmax(torch::matmul(qkv[0], qkv[1].transpose(-2, -1)) * 0.25 + in[2], -1);
      h = h + linear(torch::matmul(weights, qkv[2]).transpose(1, 2).reshape({kBatch, kLength, kWidth}));
      h = h + linear(torch::gelu(linear(normed(h)), "tanh"));
    }
    return torch::cross_entropy_loss(linear(normed(h)).view({kBatch * kLength, kWords}), in[1]);
  };
  return with_sgd(model);
}

CaptureModel convolutions() {
  CaptureModel model{.parameters = {parameter({16, 1, 3, 3}, 0.3), torch::zeros({16}).set_requires_grad(true),
                                    parameter({32, 16, 3, 3}, 0.1), torch::zeros({32}).set_requires_grad(true)},
                     .inputs = {torch::randn({32, 1, 28, 28}), torch::randint(10, {32})}};
  for (const Tensor& each : dense({32 * 7 * 7, 10})) model.parameters.push_back(each);
  model.loss_of = [p = model.parameters](const Tensors& in) {
    Tensor h = torch::max_pool2d(torch::relu(torch::conv2d(in[0], p[0], p[1], 1, 1)), 2);
    h = torch::max_pool2d(torch::relu(torch::conv2d(h, p[2], p[3], 1, 1)), 2);
    return torch::cross_entropy_loss(torch::linear(h.flatten(1), p[4], p[5]), in[1]);
  };
  return with_sgd(model);
}

}  // namespace

Tensor CaptureModel::step(const Tensors& given) const {
  optimizer->zero_grad();
  Tensor loss = loss_of(given);
  loss.backward();
  optimizer->step();
  return loss;
}

const std::vector<CaptureModelKind>& models_for_lanes() {
  static const std::vector<CaptureModelKind> kinds{{"ensemble 8x64",
                                                    [] {
                                                      return nets({64, 64, 64, 1}, 8, 32);
                                                    }},
                                                   {"twin critics", twin_critics},
                                                   {"lstm 64", [] { return lstm(64, 16, 50); }},
                                                   {"lstm 64, two", [] { return two_layers(64, 16, 50); }},
                                                   {"wgan-gp", wgan},
                                                   {"transformer 64", transformer},
                                                   {"mlp 3x512", [] { return mlp(512, 64); }},
                                                   {"mlp 3x64", [] { return mlp(64, 32); }}};
  return kinds;
}

const std::vector<CaptureModelKind>& capture_models() {
  static const std::vector<CaptureModelKind> kinds{{"mlp 3x64", [] { return mlp(64, 32); }},
                                                   {"mlp 3x64, adam", mlp_adam},
                                                   {"lstm 16", [] { return lstm(16, 8, 20); }},
                                                   {"lstm 64", [] { return lstm(64, 16, 50); }},
                                                   {"pinn", pinn},
                                                   {"wgan-gp", wgan},
                                                   {"transformer 64", transformer},
                                                   {"mlp 3x512", [] { return mlp(512, 64); }},
                                                   {"conv net", convolutions},
                                                   {"rl_many_small", actor_critic}};
  return kinds;
}

}  // namespace overdrive::bench
