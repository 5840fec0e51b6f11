#include "bench/networks.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace overdrive::bench {
namespace {

using at::Tensor;

// Parameters and data in a fixed order from a fixed seed, so that two networks of a kind are the same.
class Maker {
 public:
  Maker(at::Device device, Network& network) : device_(device), network_(network) { torch::manual_seed(1); }

  Tensor parameter(at::IntArrayRef sizes, double scale = 0.1) {
    network_.parameters.push_back((torch::randn(sizes) * scale).to(device_).detach().requires_grad_(true));
    return network_.parameters.back();
  }
  Tensor data(at::IntArrayRef sizes) const { return torch::randn(sizes).to(device_); }

 private:
  const at::Device device_;
  Network& network_;
};

// relu(x @ w + b), layer after layer, in operations of one kernel each.
Network mlp(at::Device device, bool quick) {
  Network network;
  Maker make(device, network);
  const int64_t width = quick ? 8 : 256;
  std::vector<std::pair<Tensor, Tensor>> layers;
  for (int i = 0; i < (quick ? 2 : 16); ++i)
    layers.emplace_back(make.parameter({width, width}), make.parameter({width}));
  network.loss = [layers, x = make.data({16, width})] {
    Tensor h = x;
    for (const auto& [w, b] : layers) h = torch::relu(h.matmul(w) + b);
    return h.pow(2).mean();
  };
  return network;
}

Network lstm(at::Device device, bool quick) {
  Network network;
  Maker make(device, network);
  const int64_t width = quick ? 4 : 128, steps = quick ? 3 : 50;
  const Tensor w = make.parameter({2 * width, 4 * width}), b = make.parameter({4 * width});
  network.loss = [w, b, steps, x = make.data({steps, 8, width}), zero = make.data({8, width}) * 0] {
    Tensor h = zero, c = zero;
    for (int64_t t = 0; t < steps; ++t) {
      const auto gates = (torch::cat({x[t], h}, 1).matmul(w) + b).chunk(4, 1);
      c = torch::sigmoid(gates[0]) * c + torch::sigmoid(gates[1]) * torch::tanh(gates[2]);
      h = torch::sigmoid(gates[3]) * torch::tanh(c);
    }
    return h.pow(2).mean();
  };
  return network;
}

// Blocks of two convolutions with normalisation, and a way around them.
Network resnet(at::Device device, bool quick) {
  Network network;
  Maker make(device, network);
  const int64_t channels = quick ? 4 : 64, size = quick ? 6 : 32;
  std::vector<std::pair<Tensor, Tensor>> blocks;
  for (int i = 0; i < (quick ? 1 : 8); ++i) {
    blocks.emplace_back(make.parameter({channels, channels, 3, 3}, 0.05),
                        make.parameter({channels, channels, 3, 3}, 0.05));
  }
  const auto layer = [](const Tensor& x, const Tensor& kernel) {
    const Tensor y = torch::conv2d(x, kernel, {}, 1, 1);
    return torch::batch_norm(y, {}, {}, {}, {}, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/true);
  };
  network.loss = [blocks, layer, x = make.data({quick ? 2 : 16, channels, size, size})] {
    Tensor h = x;
    for (const auto& [first, second] : blocks) h = torch::relu(h + layer(torch::relu(layer(h, first)), second));
    return h.pow(2).mean();
  };
  return network;
}

Network transformer(at::Device device, bool quick) {
  Network network;
  Maker make(device, network);
  const int64_t heads = quick ? 2 : 8, width = quick ? 8 : 512, length = quick ? 4 : 128;
  const Tensor qkv = make.parameter({width, 3 * width}, 0.02), out = make.parameter({width, width}, 0.02),
               up = make.parameter({width, 4 * width}, 0.02), down = make.parameter({4 * width, width}, 0.02),
               gain = make.parameter({width}, 1);
  network.loss = [=, x = make.data({8, length, width})] {
    const auto normal = [&](const Tensor& t) { return torch::layer_norm(t, {width}, gain); };
    const auto heads_of = [&](const Tensor& t) {
      return t.view({8, length, heads, width / heads}).transpose(1, 2);
    };
    const auto parts = normal(x).matmul(qkv).chunk(3, -1);
    const Tensor attended = torch::scaled_dot_product_attention(
        heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]), {}, 0.0, /*is_causal=*/true);
    const Tensor h = x + attended.transpose(1, 2).reshape({8, length, width}).matmul(out);
    return (h + torch::gelu(normal(h).matmul(up)).matmul(down)).pow(2).mean();
  };
  return network;
}

// Two branches on two streams, joined on the current one. On the CPU, one after the other.
Network two_streams(at::Device device, bool quick) {
  Network network;
  Maker make(device, network);
  const int64_t width = quick ? 8 : 512;
  const Tensor first = make.parameter({width, width}, 0.02), second = make.parameter({width, width}, 0.02);
  const auto branch = [quick](Tensor h, const Tensor& w) {
    for (int i = 0; i < (quick ? 2 : 20); ++i) h = torch::relu(h.matmul(w));
    return h;
  };
  if (device.is_cpu()) {
    network.loss = [=, x = make.data({16, width})] {
      return (branch(x, first) + branch(x, second)).pow(2).mean();
    };
    return network;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  const auto sides = std::make_shared<std::vector<c10::Stream>>(
      std::vector<c10::Stream>{guard.getNewStream(device), guard.getNewStream(device)});
  network.loss = [=, x = make.data({16, width})] {
    const c10::Stream here = guard.getStream(device);
    const auto wait = [](const c10::Stream& later, const c10::Stream& earlier) {
      c10::Event event(later.device_type());
      event.record(earlier);
      event.block(later);
    };
    std::vector<Tensor> parts;
    for (const auto& [side, w] : {std::pair{sides->at(0), first}, {sides->at(1), second}}) {
      wait(side, here);
      const c10::StreamGuard on_side(side);
      parts.push_back(branch(x, w));
    }
    for (const c10::Stream& side : *sides) wait(here, side);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].record_stream(here);
    return (parts[0] + parts[1]).pow(2).mean();
  };
  return network;
}

}  // namespace

const std::vector<NetworkKind>& network_kinds() {
  static const auto* kinds = new std::vector<NetworkKind>{
      {"mlp", "an MLP in small operations", mlp},
      {"lstm", "an LSTM in small operations", lstm},
      {"resnet", "residual blocks of convolutions", resnet},
      {"transformer", "one transformer block", transformer},
      {"two_streams", "two branches on two streams", two_streams},
  };
  return *kinds;
}

}  // namespace overdrive::bench
