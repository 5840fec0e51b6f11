// Random chains of random blocks: plain, and checkpointed in both forms, with the same seed, bit for bit.
#include "test/checkpoint/checkpoint_fixture.h"

#include <random>

namespace overdrive::checkpoint {
namespace {

// One layer of a random net: what it computes depends on the choice alone, so it can be built again.
Tensor apply(int choice, const Tensor& t, const Tensor& w) {
  switch (choice) {
    case 0:
      return at::linear(t, w);
    case 1:
      return t.tanh();
    case 2:
      return at::dropout(t, 0.3, true);
    case 3:
      return at::layer_norm(t, {t.size(1)});
    case 4:
      return t.t().contiguous().t() + w[0];
    case 5:
      return t * at::rand_like(t);
    case 6:
      return at::cat({t.slice(1, 0, 3), t.slice(1, 3)}, 1).relu_();
    case 7:
      return at::softmax(t, 1).mul(t);
    case 8:
      return t.view({2, 2, -1}).transpose(0, 1).reshape(t.sizes());
    default: {
      Tensor y = t * 2;
      y.slice(0, 0, 2).add_(w[1]);
      return y;
    }
  }
}

struct Block {
  std::vector<int> choices;
  std::vector<Tensor> weights;  // one for each layer: none is used twice
  bool checkpointed = false;
  bool nested = false;

  Tensor run(size_t begin, size_t end, Tensor t) const {
    for (size_t i = begin; i < end; ++i) t = apply(choices[i], t, weights[i]);
    return t;
  }
};

class Net {
 public:
  explicit Net(unsigned seed) {
    std::mt19937 random(seed);
    for (size_t blocks = 1 + random() % 5; blocks > 0; --blocks) {
      Block block;
      for (size_t layers = 1 + random() % 5; layers > 0; --layers) {
        block.choices.push_back(static_cast<int>(random() % 10));
        block.weights.push_back(at::randn({8, 8}).div_(3).requires_grad_());
      }
      block.checkpointed = random() % 4 != 0;
      block.nested = random() % 3 == 0;
      blocks_.push_back(std::move(block));
    }
  }

  // Without options: the plain net.
  Tensor forward(Tensor t, const std::optional<Options>& options) const {
    for (const Block& block : blocks_) {
      if (!options || !block.checkpointed) {
        t = block.run(0, block.choices.size(), t);
      } else {
        t = checkpoint(
            *options, [&block, &options](const Tensor& u) { return inside(block, *options, u); }, t);
      }
    }
    return t;
  }

  Tensors gradients() const {
    Tensors all;
    for (const Block& block : blocks_) {
      for (const Tensor& weight : block.weights) {
        all.push_back(weight.grad());
        weight.mutable_grad() = Tensor();
      }
    }
    return all;
  }

 private:
  static Tensor inside(const Block& block, const Options& options, const Tensor& t) {
    const size_t layers = block.choices.size(), half = layers / 2;
    if (!block.nested || half == 0) return block.run(0, layers, t);
    const Tensor y = checkpoint(
        options, [&block, half](const Tensor& u) { return block.run(0, half, u); }, t);
    return block.run(half, layers, y);
  }

  std::vector<Block> blocks_;
};

Tensors results(const Net& net, const Tensor& x, const std::optional<Options>& options) {
  torch::manual_seed(17);
  x.mutable_grad() = Tensor();
  const Tensor y = net.forward(x, options);
  const Tensor scale = at::rand_like(y);  // draws behind the regions, and in between nothing may be lost
  (y * scale).sum().backward();
  Tensors all{y.detach(), x.grad(), at::rand({3})};
  for (Tensor& gradient : net.gradients()) all.push_back(std::move(gradient));
  return all;
}

OVERDRIVE_BOTH_FORMS(RandomNets);

TEST_P(RandomNets, HaveTheBitsOfThePlainNet) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    torch::manual_seed(seed);
    const Net net(seed);
    Options with = options();
    with.checksum = seed % 2 == 0;
    if (GetParam() == Form::kEarly) with.ahead = seed % 4;
    const Tensors want = results(net, x, std::nullopt), got = results(net, x, with);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(same_bits(got[i], want[i])) << "net " << seed << ", result " << i;
    }
  }
}

// A gradient, and the gradient of its square; plain grad() calls with some of the weights wanted.
Tensors second_results(const Net& net, const Tensor& x, const std::optional<Options>& options) {
  torch::manual_seed(17);
  x.mutable_grad() = Tensor();
  const Tensor y = net.forward(x, options);
  const Tensor first =
      torch::autograd::grad({y.square().sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  Tensors all{y.detach(), first.detach(), torch::autograd::grad({first.square().sum()}, {x}, {}, true)[0]};
  (first * y).sum().backward();
  all.push_back(x.grad());
  for (Tensor& gradient : net.gradients()) all.push_back(std::move(gradient));
  return all;
}

using RandomNetsOnDemand = CheckpointTest;

TEST_F(RandomNetsOnDemand, HaveTheSecondDerivativesOfThePlainNet) {
  for (unsigned seed = 0; seed < 80; ++seed) {
    torch::manual_seed(seed);
    const Net net(seed);
    const Options with{.form = Form::kOnDemand, .early_stop = seed % 3 != 0, .keep_recomputed = seed % 2 == 0};
    const Tensors want = second_results(net, x, std::nullopt), got = second_results(net, x, with);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(same_bits(got[i], want[i])) << "net " << seed << ", result " << i;
    }
  }
}

}  // namespace
}  // namespace overdrive::checkpoint
