// Small networks that train on the fake accelerator, with the bits of the CPU.
#include "test/support/fake/device_contract.h"

#include <torch/nn/functional.h>

namespace {

using namespace overdrive;
using torch::Tensor;
namespace F = torch::nn::functional;
namespace fake = test::fake;

OVERDRIVE_DEVICE_CONTRACT(Training);

// Parameters in a fixed order, made on the CPU, moved.
class Net {
 public:
  explicit Net(at::Device device) : device_(device) { torch::manual_seed(7); }
  Tensor make(at::IntArrayRef sizes) {
    parameters_.push_back((torch::randn(sizes) * 0.3).to(device_).detach().requires_grad_(true));
    return parameters_.back();
  }
  Tensor data(at::IntArrayRef sizes) const { return torch::randn(sizes).to(device_); }
  // What is left of the parameters after `steps` steps of plain gradient descent.
  std::vector<Tensor> train(int steps, const std::function<Tensor()>& loss) {
    for (int i = 0; i < steps; ++i) {
      loss().backward();
      const torch::NoGradGuard no_grad;
      for (Tensor& p : parameters_) {
        p.sub_(p.grad() * 0.05);
        p.mutable_grad() = Tensor();
      }
    }
    std::vector<Tensor> trained;
    for (const Tensor& p : parameters_) trained.push_back(p.detach().cpu());
    return trained;
  }

 private:
  const at::Device device_;
  std::vector<Tensor> parameters_;
};

std::vector<Tensor> train_mlp(at::Device device) {
  Net net(device);
  const Tensor w1 = net.make({6, 16}), b1 = net.make({16}), w2 = net.make({16, 16}), w3 = net.make({16, 3});
  const Tensor x = net.data({8, 6}), y = net.data({8, 3});
  return net.train(
      4, [&] { return (torch::relu(torch::relu(x.matmul(w1) + b1).matmul(w2)).matmul(w3) - y).pow(2).mean(); });
}

std::vector<Tensor> train_cnn(at::Device device) {
  Net net(device);
  const Tensor k1 = net.make({4, 1, 3, 3}), k2 = net.make({4, 4, 3, 3}), w = net.make({64, 5});
  const Tensor x = net.data({2, 1, 8, 8}), y = net.data({2, 5});
  return net.train(3, [&] {
    Tensor h = torch::relu(F::conv2d(x, k1, F::Conv2dFuncOptions().padding(1)));
    h = F::avg_pool2d(torch::relu(F::conv2d(h, k2, F::Conv2dFuncOptions().padding(1))),
                      F::AvgPool2dFuncOptions(2));
    return (h.flatten(1).matmul(w) - y).pow(2).mean();
  });
}

std::vector<Tensor> train_lstm(at::Device device) {
  Net net(device);
  const Tensor from_input = net.make({4, 32}), from_hidden = net.make({8, 32}), bias = net.make({32}),
               head = net.make({8, 2});
  const Tensor x = net.data({5, 3, 4}), y = net.data({3, 2}), zero = net.data({3, 8}) * 0;
  return net.train(3, [&] {
    Tensor h = zero, c = zero;
    for (int64_t t = 0; t < x.size(0); ++t) {
      const auto gates = (x[t].matmul(from_input) + h.matmul(from_hidden) + bias).chunk(4, 1);
      c = torch::sigmoid(gates[1]) * c + torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
      h = torch::sigmoid(gates[3]) * torch::tanh(c);
    }
    return (h.matmul(head) - y).pow(2).mean();
  });
}

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], wanted[i])) << "parameter " << i;
}

TYPED_TEST(Training, AnMlpTrainsWithTheCpusBits) {
  expect_same_bits(train_mlp(fake::device(1)), train_mlp(at::kCPU));
}
TYPED_TEST(Training, ACnnTrainsWithTheCpusBits) {
  expect_same_bits(train_cnn(fake::device(2)), train_cnn(at::kCPU));
}
TYPED_TEST(Training, AnLstmTrainsWithTheCpusBits) {
  expect_same_bits(train_lstm(fake::device(3)), train_lstm(at::kCPU));
}

TYPED_TEST(Training, OnASideStreamToo) {
  const std::vector<Tensor> wanted = train_mlp(at::kCPU);
  std::vector<Tensor> got;
  {
    const c10::StreamGuard guard(fake::stream(1, 2));
    got = train_mlp(fake::device(1));
  }
  expect_same_bits(got, wanted);
}

}  // namespace
