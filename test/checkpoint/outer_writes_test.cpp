// Tensors from outside that a region writes to: a recomputation leaves them as they were.
#include "test/checkpoint/checkpoint_fixture.h"

#include <torch/nn.h>

#include <thread>

namespace overdrive::checkpoint {
namespace {

namespace nn = torch::nn;

// Counts and averages in its buffers, by operators in place, on views and with an output that is given.
struct AveragesImpl : nn::Module {
  AveragesImpl()
      : mean(register_buffer("mean", at::zeros({8}))),
        last(register_buffer("last", at::zeros({4, 8}))),
        least(register_buffer("least", at::zeros({8}))),
        count(register_buffer("count", at::zeros({}, at::kLong))) {}
  Tensor forward(const Tensor& t) {
    if (is_training()) {
      const at::NoGradGuard no_grad;
      mean.mul_(0.9).add_(t.mean(0), 0.1);
      last.slice(0, 1, 3).copy_(t.slice(0, 0, 2));
      at::minimum_out(least, least, std::get<0>(t.min(0)));
      count += 1;
    }
    return t.tanh();
  }
  Tensor mean, last, least, count;
};
TORCH_MODULE(Averages);

// A module, and what the plain one of the same kind has after two steps.
class OuterWritesTest : public BothForms {
 protected:
  using Forward = std::function<Tensor(const Tensor&)>;
  using Checkpointed = std::function<Tensor(const Forward&, const Tensor&)>;

  Tensor in_a_region(const Forward& forward, const Tensor& t) const {
    return checkpoint(options(), forward, t);
  }

  // Two steps, then eval().
  template <typename Module>
  Tensors results(Module module, const Tensor& input, const Checkpointed& run) const {
    const Forward forward = [module](const Tensor& t) mutable { return module->forward(t); };
    Tensors all;
    for (int i = 0; i < 2; ++i) {
      const Tensor leaf = input.detach().clone().requires_grad_();
      Tensor y = run(forward, leaf + i);
      (y * y.detach()).sum().backward();
      all.push_back(y.detach());
      all.push_back(leaf.grad());
    }
    for (const Tensor& parameter : module->parameters()) all.push_back(parameter.grad());
    for (const Tensor& buffer : module->buffers()) all.push_back(buffer.clone());
    module->eval();
    all.push_back(module->forward(input).detach());
    return all;
  }

  template <typename Make>
  void expect_same_module(const Make& make, const Tensor& input, const Checkpointed& run) const {
    torch::manual_seed(1);
    const Tensors want =
        results(make(), input, [](const Forward& forward, const Tensor& t) { return forward(t); });
    torch::manual_seed(1);
    const Tensors got = results(make(), input, run);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i;
  }
  template <typename Make>
  void expect_same_module(const Make& make, const Tensor& input) const {
    expect_same_module(make, input, [this](const Forward& f, const Tensor& t) { return in_a_region(f, t); });
  }
};
INSTANTIATE_TEST_SUITE_P(Form, OuterWritesTest, testing::Values(Form::kEarly, Form::kOnDemand), form_name);

TEST_P(OuterWritesTest, OfNormalisationAreThoseOfThePlainModule) {
  const Tensor rows = at::randn({6, 8}), lines = at::randn({3, 4, 5}), images = at::randn({2, 4, 3, 3}),
               volumes = at::randn({2, 3, 2, 2, 2});
  expect_same_module([] { return nn::BatchNorm1d(8); }, rows);
  expect_same_module([] { return nn::BatchNorm1d(4); }, lines);
  expect_same_module([] { return nn::BatchNorm2d(4); }, images);
  expect_same_module([] { return nn::BatchNorm3d(3); }, volumes);
  expect_same_module([] { return nn::BatchNorm2d(nn::BatchNormOptions(4).momentum(std::nullopt)); }, images);
  expect_same_module([] { return nn::BatchNorm2d(nn::BatchNormOptions(4).affine(false)); }, images);
  expect_same_module([] { return nn::InstanceNorm2d(nn::InstanceNormOptions(4).track_running_stats(true)); },
                     images);
}

TEST_P(OuterWritesTest, OfOtherModulesAreThoseOfThePlainModule) {
  expect_same_module([] { return Averages(); }, at::randn({4, 8}));
}

TEST_P(OuterWritesTest, AreLeftAloneInRegionsOfRegionsAndInChains) {
  const auto net = [] {
    return nn::Sequential(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::ReLU(nn::ReLUOptions(true)),
                          nn::Linear(8, 8), Averages(), nn::BatchNorm1d(8), nn::Dropout(0.2));
  };
  const Tensor rows = at::randn({4, 8});
  expect_same_module(net, rows);
  expect_same_module(net, rows, [this](const Forward& f, const Tensor& t) {
    return in_a_region([this, f](const Tensor& u) { return in_a_region(f, u); }, t);
  });
}

TEST_P(OuterWritesTest, AreLeftAloneByEachBackwardOfAKeptGraph) {
  nn::BatchNorm1d plain(8), norm(8);
  plain->forward(x).sum().backward();
  const Tensor y = in_a_region([norm](const Tensor& t) mutable { return norm->forward(t); }, x);
  for (int i = 0; i < 3; ++i) y.sum().backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(same_bits(norm->running_mean, plain->running_mean));
  EXPECT_TRUE(same_bits(norm->running_var, plain->running_var));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

// {x} --[buffer = 2; times buffer; sin; times buffer]--> times buffer --> {y}: nodes inside and outside have
// saved the buffer.
TEST_P(OuterWritesTest, KeepTheVersionThatNodesHaveSaved) {
  const Tensor buffer = at::zeros({8});
  const auto version = buffer._version();
  const auto part = [buffer](const Tensor& t) {
    buffer.fill_(2);
    return (t * buffer).sin() * buffer;
  };
  expect_same([&] { return part(x) * buffer; }, [&] { return in_a_region(part, x) * buffer; });
  EXPECT_EQ(buffer._version(), version + 2) << "once for each of the two forwards";
}

// The function overwrites its workspace and reads it by its address.
TEST_P(OuterWritesTest, AreThereWhileTheFunctionRunsAgain) {
  const Tensor workspace = at::zeros({4, 8});
  const auto f = [workspace](const Tensor& t) {
    const at::AutoGradMode no_grad(false);
    workspace.copy_(t);
    return at::from_blob(workspace.data_ptr(), {4, 8}).clone();
  };
  const auto scaled = [f](const Tensor& t) { return t * f(t.detach()); };
  expect_same([&] { return scaled(scaled(x)); }, [&] { return in_a_region(scaled, in_a_region(scaled, x)); });
}

TEST_P(OuterWritesTest, ThatRecordAGradientStay) {
  const auto f = [](const Tensor& t) {
    const Tensor sum = at::zeros({4, 8});
    return sum.add_(t).mul_(t).sin();
  };
  expect_same([&] { return f(x); }, [&] { return in_a_region(f, x); });
  const auto captured = [&](bool plain) {
    const Tensor outer = at::zeros({4, 8});
    const auto g = [outer](const Tensor& t) {
      outer.zero_();
      outer.copy_(t * 2);
      return outer.sin() * outer;
    };
    return plain ? g(x) : in_a_region(g, x);
  };
  if (GetParam() == Form::kEarly) {
    expect_same([&] { return captured(true); }, [&] { return captured(false); });
  } else {  // the first run's nodes have saved the tensor, which then has a history
    EXPECT_THAT(error_of([&] { captured(false).sum().backward(); }),
                HasSubstr("modified by an inplace operation"));
  }
}

TEST_P(OuterWritesTest, OfARecomputationThatFailsAreUndone) {
  nn::BatchNorm1d norm(8);
  bool fail = true;
  const Tensor y = in_a_region(
      [&](const Tensor& t) {
        const Tensor normed = norm->forward(t);
        TORCH_CHECK(!is_recomputing() || !fail, "not now");
        return normed.sin();
      },
      x);
  const Tensor mean = norm->running_mean.clone();
  const auto version = norm->num_batches_tracked._version();
  EXPECT_THAT(error_of([&] { y.sum().backward({}, true); }), HasSubstr("not now"));
  EXPECT_TRUE(same_bits(norm->running_mean, mean));
  fail = false;
  y.sum().backward();
  EXPECT_TRUE(same_bits(norm->running_mean, mean));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
  EXPECT_EQ(norm->num_batches_tracked._version(), version);
}

TEST_P(OuterWritesTest, MayBeAnOutput) {
  const Tensor count = at::zeros({});
  const auto f = [this, count](const Tensor& t) {
    count.add_(1);
    return std::pair(block(t), count);
  };
  const auto [y, counted] = checkpoint(options(), f, x);
  y.sum().backward();
  EXPECT_EQ(counted.item<float>(), 1);
  EXPECT_EQ(count.item<float>(), 1);
}

TEST_P(OuterWritesTest, OfSeveralThreadsAtOnceAreUndone) {
  nn::BatchNorm1d norm(8);
  Tensors outputs;
  for (int i = 0; i < 4; ++i) {
    outputs.push_back(in_a_region([norm](const Tensor& t) mutable { return norm->forward(t).tanh(); },
                                  at::randn({4, 8}).requires_grad_()));
  }
  const Tensor mean = norm->running_mean.clone(), var = norm->running_var.clone();
  std::vector<std::thread> threads;
  for (const Tensor& y : outputs) {
    threads.emplace_back([y] {
      for (int i = 0; i < 20; ++i) y.sum().backward({}, /*retain_graph=*/true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(same_bits(norm->running_mean, mean));
  EXPECT_TRUE(same_bits(norm->running_var, var));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 4);
}

using OuterWritesOfChains = CheckpointTest;

TEST_F(OuterWritesOfChains, AreLeftAloneWhateverIsKept) {
  const auto make = [] {
    torch::manual_seed(4);
    return nn::Sequential(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Tanh(), nn::BatchNorm1d(8), Averages(),
                          nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Tanh());
  };
  nn::Sequential plain = make();
  plain->forward(x).sum().backward();
  for (const ChainSchedule& schedule :
       {ChainSchedule(Segments{3}), ChainSchedule(Revolve{1}), ChainSchedule(Revolve{3})}) {
    for (const int64_t ahead : {0, 2}) {
      nn::Sequential chain = make();
      checkpoint_sequential(layers_of(*chain), x, schedule, {.form = Form::kEarly, .ahead = ahead})
          .sum()
          .backward();
      for (size_t i = 0; i < plain->buffers().size(); ++i) {
        EXPECT_TRUE(same_bits(chain->buffers()[i], plain->buffers()[i])) << i;
      }
      for (size_t i = 0; i < plain->parameters().size(); ++i) {
        EXPECT_TRUE(same_bits(chain->parameters()[i].grad(), plain->parameters()[i].grad())) << i;
      }
    }
  }
}

// A region that writes runs in its turn: other threads must not meet what it writes for a while.
TEST_F(OuterWritesOfChains, AreNotMadeAhead) {
  nn::BatchNorm1d norm(8);
  std::atomic<int> elsewhere = 0;
  const auto here = std::this_thread::get_id();
  const auto f = [&](const Tensor& t) {
    elsewhere += std::this_thread::get_id() != here;
    return norm->forward(t);
  };
  Tensor y = x;
  for (int i = 0; i < 4; ++i) y = checkpoint({.form = Form::kEarly, .ahead = 3}, f, y);
  y.sum().backward();
  EXPECT_EQ(elsewhere, 0);
}

// The tensors that the function makes by itself, and writes to, are nobody's to keep.
TEST_F(OuterWritesOfChains, DoNotStandInTheWayOfRunningAhead) {
  std::atomic<int> elsewhere = 0, again = 0;
  const auto here = std::this_thread::get_id();
  const auto f = [&](const Tensor& t) {
    again += is_recomputing();
    elsewhere += std::this_thread::get_id() != here;
    return block(t).relu_();
  };
  Tensor y = x;
  for (int i = 0; i < 6; ++i) y = checkpoint({.form = Form::kEarly, .ahead = 1}, f, y);
  y.sum().backward();
  EXPECT_EQ(again, 6);
}

}  // namespace
}  // namespace overdrive::checkpoint
