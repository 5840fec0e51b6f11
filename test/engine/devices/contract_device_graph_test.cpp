// Graphs over several devices: the same gradients as on the CPU, whoever runs which node.
#include "test/support/caught.h"
#include "test/support/fake/device_contract.h"
#include "test/support/timeline.h"

namespace {

using namespace overdrive;
using test::device_leaf;
using torch::Tensor;
using torch::autograd::grad;
namespace fake = test::fake;

OVERDRIVE_DEVICE_CONTRACT(DeviceGraph);

// Where a graph lives: on the devices of an accelerator, or all on the CPU.
struct Place {
  bool devices;
  at::Device operator()(int index) const { return devices ? fake::device(index) : at::Device(at::kCPU); }
};

Tensor parameter(at::Device device, at::IntArrayRef sizes, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(sizes).to(device).detach().requires_grad_(true);
}

// The gradients of all parameters, on the CPU.
struct Gradients {
  std::vector<Tensor> all;
  void add(const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters) all.push_back(p.grad().cpu());
  }
  friend bool operator==(const Gradients& a, const Gradients& b) {
    return a.all.size() == b.all.size() &&
           std::equal(a.all.begin(), a.all.end(), b.all.begin(),
                      [](const Tensor& x, const Tensor& y) { return torch::equal(x, y); });
  }
};

// {x} -> dev 0: relu(x@w0) -> dev 1: relu(.@w1) -> dev 2 -> dev 3 -> loss
Gradients pipeline(Place place) {
  std::vector<Tensor> parameters;
  Tensor x = parameter(place(0), {4, 5}, 1);
  parameters.push_back(x);
  for (int d = 0; d < 4; ++d) {
    const Tensor w = parameter(place(d), {5, 5}, 10 + static_cast<uint64_t>(d));
    parameters.push_back(w);
    x = torch::relu(x.to(place(d)).matmul(w)) + x.to(place(d));
  }
  x.pow(2).sum().backward();
  Gradients gradients;
  gradients.add(parameters);
  return gradients;
}

TYPED_TEST(DeviceGraph, APipelineOverFourDevicesHasTheCpusGradients) {
  const Gradients wanted = pipeline({false});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pipeline({true}), wanted);
}

// One parameter used on every device, and a CPU node in between.
//   {w on 0} --to--> each device: (w*c).exp() --cpu--> * {m} --to 0--> sum
Gradients fan_out(Place place) {
  const Tensor w = parameter(place(0), {3, 3}, 1);
  const Tensor m = parameter(at::kCPU, {3, 3}, 2);
  std::vector<Tensor> parts;
  for (int d = 0; d < 5; ++d) {
    const Tensor c = torch::full({3, 3}, 0.1 * (d + 1)).to(place(d));
    parts.push_back(((w.to(place(d)) * c).exp().cpu() * m).to(place(0)));
  }
  torch::stack(parts).sum().backward();
  Gradients gradients;
  gradients.add({w, m});
  return gradients;
}

// Which of the five gradients arrives first is up to the devices, so the last bits may differ.
TYPED_TEST(DeviceGraph, AParameterUsedOnEveryDeviceGetsTheSum) {
  const Gradients wanted = fan_out({false});
  for (int i = 0; i < 20; ++i) {
    const Gradients got = fan_out({true});
    EXPECT_TRUE(torch::allclose(got.all[0], wanted.all[0]));
    EXPECT_TRUE(torch::allclose(got.all[1], wanted.all[1]));
  }
}

TYPED_TEST(DeviceGraph, GradOfAnInnerTensorStopsThere) {
  // {x on 0} --*2--> {y} --to 1--> {z} --exp--> loss        grad of y and z only
  const Tensor x = device_leaf(0);
  const Tensor y = x * 2;
  const Tensor z = y.to(fake::device(1));
  const auto grads = grad({z.exp().sum()}, {y, z});
  EXPECT_TRUE(torch::equal(grads[0].cpu(), torch::full({2}, 2.0).exp()));
  EXPECT_TRUE(torch::equal(grads[1].cpu(), torch::full({2}, 2.0).exp()));
  EXPECT_EQ(grads[0].device(), fake::device(0));
  EXPECT_FALSE(x.grad().defined());
}

TYPED_TEST(DeviceGraph, BackwardIntoChosenLeavesLeavesTheOthersAlone) {
  const Tensor a = device_leaf(0);
  const Tensor b = device_leaf(1);
  const Tensor loss = (a.to(fake::device(1)) * b).to(fake::device(2)).sum();
  loss.backward({}, /*retain_graph=*/true, /*create_graph=*/false, std::vector<Tensor>{b});
  EXPECT_FALSE(a.grad().defined());
  EXPECT_TRUE(torch::equal(b.grad().cpu(), torch::ones({2})));
}

TYPED_TEST(DeviceGraph, ASecondDerivativeCrossesDevicesToo) {
  const Tensor x = device_leaf(0, {2}, 3);
  const Tensor y = x.pow(3).to(fake::device(1)).sum();
  const Tensor first = grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  const Tensor second = grad({first.to(fake::device(2)).sum()}, {x})[0];
  EXPECT_TRUE(torch::equal(second.cpu(), torch::full({2}, 18.0)));
}

TYPED_TEST(DeviceGraph, SeveralRootsMayBeOnSeveralDevices) {
  const Tensor x = device_leaf(0);
  const Tensor a = x * 2;
  const Tensor b = (x * 3).to(fake::device(1));
  const Tensor c = (x * 4).cpu();
  torch::autograd::backward({a, b, c}, {torch::ones_like(a), torch::ones_like(b), torch::ones_like(c)});
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 9.0)));
}

TYPED_TEST(DeviceGraph, AKeptGraphRunsAgain) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1)).sum();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 4.0)));
}

TYPED_TEST(DeviceGraph, HooksSeeTheGradientOnTheDeviceOfTheirTensor) {
  test::Timeline timeline;
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(3));
  y.register_hook([&](const Tensor& g) {
    timeline.add("y ", g.device().str(), " current ", fake::current_device());
    return g * 5;
  });
  x.register_hook(
      [&](const Tensor& g) { timeline.add("x ", g.device().str(), " current ", fake::current_device()); });
  y.sum().backward();
  EXPECT_EQ(timeline.events(), (test::Events{"y fake:3 current 3", "x fake:0 current 0"}));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 10.0)));
}

TYPED_TEST(DeviceGraph, NodesOfOneDeviceComeInTheOrderOfOneThread) {
  // {x on 2} --a--> --b--> loss      {x} --c--> loss: later forward ops first, then AccumulateGrad
  test::Timeline timeline;
  const Tensor x = device_leaf(2);
  const auto note = [&](const char* name) { return [&timeline, name](const Tensor&) { timeline.add(name); }; };
  const Tensor a = x * 2;
  const Tensor b = a * 2;
  const Tensor c = x * 3;
  for (const auto& [tensor, name] : {std::pair{a, "a"}, {b, "b"}, {c, "c"}, {x, "x"}})
    tensor.register_hook(note(name));
  (b + c).sum().backward();
  EXPECT_EQ(timeline.events(), (test::Events{"c", "b", "a", "x"}));
}

// A gradient is checked against the device of the input that it goes to, unless that belongs to a tensor
// subclass.
//   {both} --1 and 2, of two devices--> the same input of {sum on 0}
Tensor sum_of(const test::variable_list& gradients) {
  Tensor got;
  const auto sum = test::make_node("sum", {}, [&](test::variable_list&& in) {
    got = in[1];
    return test::variable_list{};
  });
  const std::vector<c10::SymInt> shape{2};
  sum->add_input_metadata(fake::options(0).dtype(at::kFloat), shape, /*is_tensor_subclass=*/true,
                          /*is_nested=*/false, at::kFloat);
  const auto both = test::make_node(
      "both", {test::edge(sum, 1), test::edge(sum, 1)}, [&](test::variable_list&&) { return gradients; },
      torch::empty({2}, fake::options(0)));
  test::run({.roots = {test::edge(both)}, .grads = {torch::ones({2}, fake::options(0))}});
  return got;
}

TYPED_TEST(DeviceGraph, NoGradientIsLostWhereDevicesMeetInOneInput) {
  const Tensor on_cpu = torch::full({2}, 1.0), on_device = torch::full({2}, 2.0, fake::options(0));
  EXPECT_TRUE(torch::equal(sum_of({on_device, on_device}).cpu(), torch::full({2}, 4.0)));
  EXPECT_TRUE(torch::equal(sum_of({on_cpu, on_cpu}), torch::full({2}, 2.0)));
  EXPECT_EQ(test::message_of([&] { sum_of({on_device, on_cpu}); }).type, "c10::Error");
  EXPECT_EQ(test::message_of([&] { sum_of({on_cpu, on_device}); }).type, "c10::Error");
}

TYPED_TEST(DeviceGraph, MetaNodesRunOnTheCallingThread) {
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  const Tensor x = device_leaf(1);
  const Tensor like = torch::empty({2}, at::kMeta);
  // {device root} --> {meta node} --> nothing
  const auto meta = test::make_node(
      "meta", {},
      [&](test::variable_list&&) {
        there = std::this_thread::get_id();
        return test::variable_list{};
      },
      like);
  const auto root = test::make_node(
      "root", {test::edge(meta), test::accumulator(x)},
      [&](test::variable_list&& in) {
        return test::variable_list{torch::empty({2}, at::kMeta), in[0]};
      },
      torch::empty({2}, fake::options(1)));
  test::run({.roots = {test::edge(root)}, .grads = {torch::ones({2}, fake::options(1))}});
  EXPECT_EQ(there, here);
}

TYPED_TEST(DeviceGraph, LazyNodesRunOnTheCallingThread) {
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  // {device root} --> {lazy node} --> nothing, without gradients: there are no lazy tensors here
  const auto lazy = test::make_node("lazy", {}, [&](test::variable_list&&) {
    there = std::this_thread::get_id();
    return test::variable_list{};
  });
  const std::vector<c10::SymInt> shape{2};
  lazy->add_input_metadata(at::TensorOptions().device(at::kLazy, 0).dtype(at::kFloat), shape,
                           /*is_tensor_subclass=*/false, /*is_nested=*/false, at::kFloat);
  const auto root = test::make_node(
      "root", {test::edge(lazy, 1), test::accumulator(device_leaf(1))},
      [](test::variable_list&&) { return test::variable_list(2); }, torch::empty({2}, fake::options(1)));
  test::run({.roots = {test::edge(root)}, .grads = {torch::ones({2}, fake::options(1))}});
  EXPECT_EQ(there, here);
}

}  // namespace
