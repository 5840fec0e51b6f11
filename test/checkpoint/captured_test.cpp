// What a function brings along beside its arguments: activations, hooks on parameters, threads.
#include "test/checkpoint/checkpoint_fixture.h"

#include <ATen/ThreadLocalState.h>
#include <torch/nn.h>

#include <atomic>
#include <thread>

namespace overdrive::checkpoint {
namespace {

OVERDRIVE_BOTH_FORMS(Captured);

// Alone the region is right; what uses the activation beside it finds no graph, and says so.
TEST_P(Captured, UsesUpAnActivationsGraph) {
  const auto net = [&](bool plain, bool beside) {
    const Tensor captured = x.exp();
    const auto f = [captured, this](const Tensor& t) { return block(t) * captured; };
    const Tensor y = plain ? f(x.sin()) : checkpoint(options(), f, x.sin());
    return beside ? y + captured.cos() : y;
  };
  expect_same([&] { return net(true, false); }, [&] { return net(false, false); });
  if (GetParam() == Form::kOnDemand) {
    return expect_same([&] { return net(true, true); }, [&] { return net(false, true); });
  }
  const Tensor y = net(false, true).sum();
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("second time"));
}

TEST_P(Captured, RunsAParametersHooksForEachRegion) {
  int calls = 0;
  weight.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient * 2;  // linear, so the result is the same either way
  });
  const auto f = [this](const Tensor& t) { return block(t); };
  expect_same([&] { return f(f(x)); }, [&] { return checkpoint(options(), f, checkpoint(options(), f, x)); });
  EXPECT_EQ(calls, GetParam() == Form::kEarly ? 1 + 2 : 1 + 1);
}

// Two threads with the caller's modes, one after the other: the other way round in the second run.
TEST_P(Captured, MayComputeOnOtherThreads) {
  int runs = 0;
  const auto f = [&](const Tensor& t) {
    Tensor parts[2];
    const at::ThreadLocalState modes;
    const int first = runs++ % 2;
    for (const int part : {first, 1 - first}) {
      std::thread([&] {
        const at::ThreadLocalStateGuard guard(modes);
        parts[part] = (t * (part + 2)).sin();
      }).join();
    }
    return parts[0] + parts[1];
  };
  const auto plain = [](const Tensor& t) { return (t * 2).sin() + (t * 3).sin(); };
  if (GetParam() == Form::kEarly) {
    return expect_same([&] { return plain(x); }, [&] { return checkpoint(options(), f, x); });
  }
  EXPECT_THAT(error_of([&] { checkpoint(options(), f, x); }), HasSubstr("several threads compute for it"));
  // A thread without them keeps what it saves.
  const auto aside = [](const Tensor& t) {
    Tensor y;
    std::thread([&] { y = (t * 2).sin(); }).join();
    return y + (t * 3).sin();
  };
  expect_same([&] { return plain(x); }, [&] { return checkpoint(options(), aside, x); });
}

// Its second run ends inside the inner backward, where its last tensor is saved.
TEST_P(Captured, MayEndInABackwardOfItsOwn) {
  const auto f = [](const Tensor& t) {
    const at::AutoGradMode with_graph(true);
    const Tensor in = t.requires_grad() ? t : t.detach().requires_grad_();
    return torch::autograd::grad({in.exp().sin().sum()}, {in}, {}, true, /*create_graph=*/true)[0];
  };
  for (int i = 0; i < 3; ++i) expect_same([&] { return f(x); }, [&] { return checkpoint(options(), f, x); });
}

TEST_P(Captured, MayBeModules) {
  torch::manual_seed(0);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.3));
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 8).sparse(true));
  const Tensor index = at::tensor({1, 3, 3, 7});
  auto f = [=](const Tensor& t) mutable {
    auto [out, state] = lstm->forward((t + table->forward(index)).unsqueeze(1));
    return norm->forward(out.squeeze(1)) + std::get<0>(state)[0];
  };
  const std::vector<std::shared_ptr<torch::nn::Module>> modules{lstm.ptr(), norm.ptr(), table.ptr()};
  const auto gradients = [&](bool plain) {
    torch::manual_seed(3);
    Tensors all;
    const Tensor y = plain ? f(x) : checkpoint(options(), f, x);
    y.square().sum().backward();
    for (const std::shared_ptr<torch::nn::Module>& module : modules) {
      for (const Tensor& parameter : module->parameters()) {
        all.push_back(parameter.grad().is_sparse() ? parameter.grad().to_dense() : parameter.grad());
        parameter.mutable_grad() = Tensor();
      }
    }
    return all;
  };
  const Tensors want = gradients(true), got = gradients(false);
  for (size_t i = 0; i < want.size(); ++i) {
    if (GetParam() == Form::kEarly) {  // without a graph, an LSTM takes another way
      EXPECT_TRUE(at::allclose(got[i], want[i], 1e-4, 1e-5)) << i;
    } else {
      EXPECT_TRUE(same_bits(got[i], want[i])) << i;
    }
  }
}

}  // namespace
}  // namespace overdrive::checkpoint
