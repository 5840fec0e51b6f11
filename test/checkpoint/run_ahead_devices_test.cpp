// Recomputations ahead on devices: on streams of their own, with every wait that it takes.
#include "test/checkpoint/device_fixture.h"

#include <ATen/Context.h>

#include <atomic>
#include <mutex>
#include <set>

namespace overdrive::checkpoint {
namespace {

using Block = std::function<Tensor(const Tensor&)>;

// Hands the gradient on, times a random number from the device's own generator, or the CPU's.
struct Noise : torch::autograd::Function<Noise> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& t) { return t.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Device device = gradients[0].device();
    const at::Generator generator = at::globalContext().defaultGenerator(device);
    return {gradients[0] * at::rand(gradients[0].sizes(), generator, at::kFloat).to(device)};
  }
};

Tensor scaled_at_random(const Tensor& t) {
  const at::Generator generator = at::globalContext().defaultGenerator(t.device());
  return t * at::rand(t.sizes(), generator, at::kFloat).to(t.device());
}

class RunAheadOnDevices : public DeviceCheckpointTest {
 protected:
  void SetUp() override {
    DeviceCheckpointTest::SetUp();
    for (int i = 0; i < 4; ++i) {
      inputs.push_back(x.detach().to(test::fake::device(i)).requires_grad_());
      weights.push_back((weight.detach() / 3).to(test::fake::device(i)).requires_grad_());
    }
  }

  Block on(int device) const {
    return
        [w = weights[static_cast<size_t>(device)]](const Tensor& t) { return at::mm(t, w.t()).tanh().sin(); };
  }
  Tensor chain(const std::vector<Block>& blocks, const std::optional<Options>& options, int device = 0) const {
    Tensor t = inputs[static_cast<size_t>(device)];
    for (const Block& block : blocks) t = options ? checkpoint(*options, block, t) : block(t);
    return t;
  }
  // What a step leaves behind, the next numbers of the generators included.
  Tensors step(const std::function<Tensor()>& forward) const {
    torch::manual_seed(21);
    for (int i = 0; i < 4; ++i) generator(i).set_current_seed(5);
    for (const Tensors* leaves : {&inputs, &weights}) {
      for (const Tensor& leaf : *leaves) leaf.mutable_grad() = Tensor();
    }
    const Tensor y = forward();
    y.square().sum().backward();
    Tensors all{y.detach().cpu(), at::rand({3})};
    for (int i = 0; i < 4; ++i) all.push_back(at::rand({3}, generator(i), at::kFloat));
    for (const Tensors* leaves : {&inputs, &weights}) {
      for (const Tensor& leaf : *leaves) all.push_back(leaf.grad().defined() ? leaf.grad().cpu() : Tensor());
    }
    return all;
  }
  void expect_same_steps(int times, const std::function<Tensor(const std::optional<Options>&)>& net,
                         const Options& options) const {
    const Tensors want = step([&] { return net(std::nullopt); });
    for (int i = 0; i < times; ++i) {
      const Tensors got = step([&] { return net(options); });
      for (size_t k = 0; k < want.size(); ++k) ASSERT_TRUE(same_bits(got[k], want[k])) << i << ", " << k;
    }
  }
  static at::Generator generator(int device) {
    return at::globalContext().defaultGenerator(test::fake::device(device));
  }

  Tensors inputs, weights;  // one on each of four devices
};

TEST_F(RunAheadOnDevices, ChangesNoBit) {
  const std::vector<Block> blocks(7, on(0));
  for (const int64_t ahead : {1, 2, 3, 9}) {
    expect_same_steps(10, [&](const auto& options) { return chain(blocks, options); },
                      {.form = Form::kEarly, .ahead = ahead});
  }
  expect_same_steps(5, [&](const auto& options) { return chain(blocks, options); },
                    {.form = Form::kEarly, .checksum = true, .ahead = 2});
}

// {0} -> {1} -> {2}, each sin(): 2 runs again in its turn, 1 and 0 before the gradient (cos) above them.
TEST_F(RunAheadOnDevices, GivesTheDeviceTheNextRegionBeforeTheGradient) {
  const Block sine = [](const Tensor& t) { return t.sin(); };
  std::mutex mutex;
  Events kernels;
  std::set<int> aside;
  const Tensor y = chain({sine, sine, sine}, Options{.form = Form::kEarly, .ahead = 1});
  test::fake::on_kernel([&](const test::fake::Kernel& kernel) {
    if (kernel.op != "aten::sin" && kernel.op != "aten::cos") return;
    const std::lock_guard lock(mutex);
    kernels.push_back(kernel.op.substr(6) + (kernel.stream == 0 ? "" : " aside"));
    if (kernel.stream != 0) aside.insert(kernel.stream);
  });
  y.sum().backward();
  test::fake::on_kernel(nullptr);
  EXPECT_THAT(kernels, ElementsAre("sin", "sin aside", "cos", "sin aside", "cos aside", "cos aside"));
  EXPECT_THAT(aside, testing::SizeIs(2)) << "neighbours do not share a stream";
}

TEST_F(RunAheadOnDevices, TellsTheAllocatorWhatCrossesStreams) {
  const Block sine = [](const Tensor& t) { return t.sin(); };
  const auto recorded = [&](int64_t ahead) {
    const Tensor y = chain({sine, sine, sine}, Options{.form = Form::kEarly, .ahead = ahead});
    test::fake::reset_calls();
    y.sum().backward();
    return test::fake::calls().recorded_streams;
  };
  // Of two regions: the input there, the gradient there and back.
  EXPECT_GE(recorded(2), recorded(0) + 6);
}

// That the checker would find what is missing.
TEST_F(RunAheadOnDevices, WouldBeCaughtWithoutItsWaits) {
  const std::vector<Block> blocks(4, on(0));
  test::fake::ignore_waits(true);
  chain(blocks, Options{.form = Form::kEarly, .ahead = 2}).sum().backward();
  test::fake::ignore_waits(false);
  EXPECT_THAT(test::fake::violations(), testing::Not(testing::IsEmpty()));
  test::fake::clear_violations();
}

// {0} -> {1} -> {2} -> {3}, twice, on four devices and so four workers, with dropout on the CPU between and
// behind.
TEST_F(RunAheadOnDevices, ChangesNoBitWithFourWorkersAndNodesThatDraw) {
  const auto net = [this](const std::optional<Options>& options) {
    const Block dropped = [](const Tensor& t) { return at::dropout(t.tanh(), 0.4, true) * t; };
    const auto region = [&](const Block& block, const Tensor& t) {
      return options ? checkpoint(*options, block, t) : block(t);
    };
    Tensor t = region(dropped, inputs[0].cpu());
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 2; ++k) t = region(on(i), t.to(test::fake::device(i)));
    }
    t = Noise::apply(t.cpu());
    return region(dropped, region([](const Tensor& u) { return u.sin(); }, t));
  };
  expect_same_steps(500, net, {.form = Form::kEarly, .ahead = 2});
}

TEST_F(RunAheadOnDevices, ReplaysTheGeneratorOfTheDevice) {
  test::fake::use_own_generators(true);
  const Block random = [this](const Tensor& t) { return scaled_at_random(on(0)(t)); };
  std::atomic<int> aside = 0;
  test::fake::on_kernel(
      [&](const test::fake::Kernel& kernel) { aside += kernel.op == "aten::sin" && kernel.stream != 0; });
  const auto net = [&](const std::optional<Options>& options) {
    const Tensor t = Noise::apply(chain({random, on(0), random}, options));
    return options ? checkpoint(*options, random, t) : random(t);
  };
  expect_same_steps(20, net, {.form = Form::kEarly, .ahead = 0});
  EXPECT_EQ(aside, 0);
  expect_same_steps(20, net, {.form = Form::kEarly, .ahead = 2});
  EXPECT_EQ(aside, 20 * 3) << "all but the last region, which comes first";
}

// The calling thread may draw from that one at any moment.
TEST_F(RunAheadOnDevices, WaitsForItsTurnWhereTheGeneratorOfTheCpuMoved) {
  test::fake::use_own_generators(true);
  const Block random = [this](const Tensor& t) { return at::dropout(on(0)(t), 0.4, true); };
  std::atomic<int> aside = 0;
  test::fake::on_kernel(
      [&](const test::fake::Kernel& kernel) { aside += kernel.op == "aten::sin" && kernel.stream != 0; });
  expect_same_steps(5,
                    [&](const auto& options) {
                      return chain({random, random, random}, options);
                    },
                    {.form = Form::kEarly, .ahead = 2});
  EXPECT_EQ(aside, 0);
}

TEST_F(RunAheadOnDevices, TriesAgainWhatFailed) {
  std::atomic<int> runs = 0;
  const Block failing_ahead = [&, this](const Tensor& t) {
    const Tensor y = on(0)(t);
    TORCH_CHECK(!is_recomputing() || ++runs != 1, "not this time");
    return y;
  };
  const auto net = [&](const std::optional<Options>& options) {
    return chain({failing_ahead, on(0), on(0)}, options);
  };
  expect_same_steps(1, net, {.form = Form::kEarly, .ahead = 2});
  EXPECT_EQ(runs, 2);
}

TEST_F(RunAheadOnDevices, AllowsABackwardInsideAndAKeptGraph) {
  const Block inner = [this](const Tensor& t) {
    const at::AutoGradMode with_graph(true);
    const Tensor leaf = t.detach().requires_grad_();
    return on(0)(t) * torch::autograd::grad({leaf.sin().sum()}, {leaf})[0];
  };
  // Region by region: the gradients of a second backward are added to those of the first one by one.
  const auto twice = [&](int64_t ahead) {
    return step([&] {
      const Tensor y = chain({inner, on(0), inner, on(0)}, Options{.form = Form::kEarly, .ahead = ahead});
      y.sum().backward({}, /*retain_graph=*/true);
      return y;
    });
  };
  const Tensors want = twice(0);
  for (int i = 0; i < 5; ++i) {
    const Tensors got = twice(2);
    for (size_t k = 0; k < want.size(); ++k) ASSERT_TRUE(same_bits(got[k], want[k])) << i << ", " << k;
  }
}

TEST_F(RunAheadOnDevices, LeavesWhatAFailedBackwardOrdered) {
  const Tensor y = chain({on(0), on(0), on(0)}, Options{.form = Form::kEarly, .ahead = 2});
  bool fail = true;
  const Block checked = [&](const Tensor& t) {
    Tensor u = t * 1;
    if (u.requires_grad()) u.register_hook([&](const Tensor&) { TORCH_CHECK(!fail, "not yet"); });
    return u;
  };
  const Tensor loss = checkpoint({.form = Form::kEarly, .ahead = 3}, checked, y).sum();
  EXPECT_THAT(error_of([&] { loss.backward({}, /*retain_graph=*/true); }), HasSubstr("not yet"));
  fail = false;
  loss.backward();
  const Tensor got = inputs[0].grad().cpu();
  inputs[0].mutable_grad() = Tensor();
  chain({on(0), on(0), on(0)}, std::nullopt).sum().backward();
  EXPECT_TRUE(same_bits(got, inputs[0].grad().cpu()));
}

}  // namespace
}  // namespace overdrive::checkpoint
