// Backwards that several threads run: errors that cross devices, backwards inside nodes of devices, callers
// that share devices, and waits that would be deadlocks if a waiting worker did not serve its queue.
#include "test/support/caught.h"
#include "test/support/fake/device_contract.h"
#include "test/support/gate.h"
#include "test/support/timeline.h"

namespace {

using namespace overdrive;
using test::device_leaf;
using test::Gate;
using test::message_of;
using torch::Tensor;
namespace fake = test::fake;

OVERDRIVE_DEVICE_CONTRACT(DeviceThreads);

// {leaf on `device`} --*factor--> --`hook`--> sum: run inside a node of another backward.
Tensor backward_on(const std::vector<int>& devices, double factor) {
  const torch::AutoGradMode on(true);
  const Tensor x = device_leaf(devices.front());
  Tensor y = x * factor;
  for (const int device : devices) y = y.to(fake::device(device)) * 1;
  y.sum().backward();
  return x.grad();
}

TYPED_TEST(DeviceThreads, AnErrorOnOneDeviceReachesTheCaller) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1)) * 3;
  x.register_hook([](const Tensor&) -> Tensor { throw std::out_of_range("on device 0"); });
  EXPECT_EQ(message_of([&] { y.sum().backward({}, true); }),
            (test::Caught{"std::out_of_range", "on device 0"}));
  EXPECT_FALSE(x.grad().defined());
  // And the next backward is as if nothing had been.
  const Tensor z = device_leaf(0);
  (z * 2).to(fake::device(1)).sum().backward();
  EXPECT_TRUE(torch::equal(z.grad().cpu(), torch::full({2}, 2.0)));
}

TYPED_TEST(DeviceThreads, AWrongGradientIsRefusedInStocksWords) {
  const auto bad = test::make_node(
      "bad", {test::accumulator(device_leaf(1))},
      [](test::variable_list&&) { return test::variable_list{torch::ones({3}, fake::options(1))}; },
      torch::empty({2}, fake::options(0)));
  EXPECT_EQ(
      message_of([&] {
        test::run({.roots = {test::edge(bad)}, .grads = {torch::ones({2}, fake::options(0))}});
      }).message,
      "Function bad returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]");
}

// The first line of each warning, whichever thread gave it.
struct Warnings : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    lines.add(warning.msg().substr(0, warning.msg().find('\n')));
  }
  test::Timeline lines;
};

// {x on 0} --sqrt(0*x)*0--> {y} --to 1--> loss
TYPED_TEST(DeviceThreads, AnomalyModeNamesTheNodeOfADeviceThatMadeANaN) {
  const torch::autograd::DetectAnomalyGuard anomaly;  // warns itself the first time
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const Tensor x = device_leaf(0);
  const Tensor y = (torch::sqrt(x * 0) * 0).to(fake::device(1));
  EXPECT_EQ(message_of([&] { y.sum().backward(); }),
            (test::Caught{"c10::Error", "Function 'SqrtBackward0' returned nan values in its 0th output."}));
  ASSERT_EQ(warnings.lines.events().size(), 1u);
  EXPECT_THAT(warnings.lines.events()[0], testing::StartsWith("Error detected in SqrtBackward0."));
}

TYPED_TEST(DeviceThreads, WarningsOfEveryDeviceReachTheCaller) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  x.register_hook([](const Tensor&) { TORCH_WARN("of device 0"); });
  y.register_hook([](const Tensor&) { TORCH_WARN("of device 1"); });
  y.sum().backward();
  EXPECT_EQ(warnings.lines.events(), (test::Events{"of device 1", "of device 0"}));
}

TYPED_TEST(DeviceThreads, ABackwardInsideANodeOfADevice) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  Tensor inner;
  y.register_hook([&](const Tensor&) { inner = backward_on({1, 0, 2}, 5); });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(inner.cpu(), torch::full({2}, 5.0)));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
}

int nested(int levels) {
  if (levels == 0) return 0;
  const torch::AutoGradMode on(true);
  int inside = -1;
  const Tensor x = device_leaf(levels % 3);
  const Tensor y = (x * 2).to(fake::device((levels + 1) % 3));
  y.register_hook([&](const Tensor&) { inside = nested(levels - 1); });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  return inside + 1;
}

TYPED_TEST(DeviceThreads, ThirtyBackwardsInsideEachOther) { EXPECT_EQ(nested(30), 30); }

TYPED_TEST(DeviceThreads, AnErrorOfAnInnerBackwardPassesThroughTheOuter) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  y.register_hook([&](const Tensor&) {
    const torch::AutoGradMode on(true);
    const Tensor z = device_leaf(2);
    const Tensor w = (z * 2).to(fake::device(1));
    z.register_hook([](const Tensor&) -> Tensor { throw std::out_of_range("inner"); });
    w.sum().backward();
  });
  EXPECT_EQ(message_of([&] { y.sum().backward(); }), (test::Caught{"std::out_of_range", "inner"}));
}

// Each of two backwards has a node on one device that starts a backward on the other's.
//   {x on 0} --hook: backward on 1--> {on 1}        {x on 1} --hook: backward on 0--> {on 0}
TYPED_TEST(DeviceThreads, TwoNodesThatStartABackwardOnEachOthersDeviceFinish) {
  for (int round = 0; round < 10; ++round) {
    Gate both(2);
    test::on_threads(2, [&](int i) {
      const int mine = i, other = 1 - i;
      const Tensor x = device_leaf(mine);
      const Tensor y = x * 2;
      y.register_hook([&](const Tensor&) {
        if (test::runs_devices_apart<TypeParam>()) both.arrive_and_wait();
        EXPECT_TRUE(torch::equal(backward_on({other, 2}, 3).cpu(), torch::full({2}, 3.0)));
      });
      y.to(fake::device(3)).sum().backward();
      EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
    });
  }
}

// One backward whose two branches are on two devices, and each branch waits for the other to have begun.
TYPED_TEST(DeviceThreads, ALongNodeOnOneDeviceHoldsUpNoOther) {
  if (!test::runs_devices_apart<TypeParam>())
    GTEST_SKIP() << "OVERDRIVE_THREADS=caller: one thread runs all devices";
  Gate both(2);
  const Tensor x = device_leaf(0);
  std::vector<Tensor> parts;
  for (const int device : {1, 2}) {
    const Tensor part = x.to(fake::device(device)) * 2;
    part.register_hook([&](const Tensor&) { both.arrive_and_wait(); });
    parts.push_back(part.to(fake::device(0)));
  }
  (parts[0] + parts[1]).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 4.0)));
}

// The best task of a device comes first, also when the node that just ran has made another one ready.
//   {x on 1} --b--> {on 1} --a--> {on 1} --to 3--
//   {x on 1} --c--> {on 1} --to 2--> d -----to 3-- sum
//                      {on 2} e -----------to 3--
// The worker of 1 is inside a while c, which was made later than b, becomes ready; e runs after that.
TYPED_TEST(DeviceThreads, AReadyNodeThatWasMadeLaterComesBeforeTheNextOfTheChain) {
  if (!test::runs_devices_apart<TypeParam>())
    GTEST_SKIP() << "OVERDRIVE_THREADS=caller: no task comes from another thread";
  Gate a_runs(2), c_is_ready(2);
  test::Timeline order;
  const Tensor x = device_leaf(1);
  const Tensor b = x * 2, a = b * 3;
  const Tensor e = device_leaf(2) * 5;
  const Tensor c = x * 7, d = c.to(fake::device(2));
  b.register_hook([&](const Tensor&) { order.add("b"); });
  c.register_hook([&](const Tensor&) { order.add("c"); });
  a.register_hook([&](const Tensor&) {
    a_runs.arrive_and_wait();
    c_is_ready.arrive_and_wait();
  });
  d.register_hook([&](const Tensor&) { a_runs.arrive_and_wait(); });
  e.register_hook([&](const Tensor&) { c_is_ready.arrive_and_wait(); });
  // Of these three, made ready at once, the node of d runs first.
  const Tensor of_a = a.to(fake::device(3)), of_e = e.to(fake::device(3)), of_d = d.to(fake::device(3));
  (of_a + of_e + of_d).sum().backward();
  EXPECT_EQ(order.events(), (test::Events{"c", "b"}));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 13.0)));
}

// A worker inside a nested wait goes on serving its queue for other callers.
//   caller A: {on 0} --hook: backward over 1, which waits for B--      caller B: {on 0} --hook: B is done--
TYPED_TEST(DeviceThreads, AWorkerThatWaitsServesOtherCallers) {
  if (!test::runs_devices_apart<TypeParam>())
    GTEST_SKIP() << "OVERDRIVE_THREADS=caller: no thread waits for another";
  Gate a_waits(2);
  Gate b_ran(2);
  test::on_threads(2, [&](int i) {
    const Tensor x = device_leaf(0);
    const Tensor y = x * 2;
    y.register_hook([&, i](const Tensor&) {
      if (i == 1) return b_ran.arrive_and_wait();
      const torch::AutoGradMode on(true);
      const Tensor z = device_leaf(1);
      const Tensor w = z * 2;
      w.register_hook([&](const Tensor&) {
        a_waits.arrive_and_wait();
        b_ran.arrive_and_wait();
      });
      w.to(fake::device(2)).sum().backward();
    });
    if (i == 1) a_waits.arrive_and_wait();
    y.to(fake::device(3)).sum().backward();
    EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  });
}

TYPED_TEST(DeviceThreads, ManyCallersShareTheDevices) {
  test::on_threads(4, [](int i) {
    for (int round = 0; round < 25; ++round) {
      const Tensor x = device_leaf((i + round) % 4, {3}, i + 1);
      Tensor y = x;
      for (int hop = 0; hop < 6; ++hop) y = (y * 2).to(fake::device((i + hop) % 5));
      (y.cpu() * 3).sum().backward();
      EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({3}, 192.0)));
    }
  });
}

TYPED_TEST(DeviceThreads, TheHostsSwitchKeepsEverythingOnTheCaller) {
  const auto here = std::this_thread::get_id();
  std::set<std::thread::id> seen;
  const auto note = [&](const Tensor&) { seen.insert(std::this_thread::get_id()); };
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  const Tensor z = (y * 2).cpu();
  for (const Tensor& tensor : {x, y, z}) tensor.register_hook(note);
  z.sum().backward();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  EXPECT_EQ(seen, (std::set<std::thread::id>{here}));
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 4.0)));
}

TYPED_TEST(DeviceThreads, AWorkerHasTheCallersModes) {
  // Grad mode, the graph task and the checkpoint mark are those of the call, on whichever thread.
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1));
  std::vector<int> tasks;
  std::vector<bool> grad_modes;
  for (const Tensor& tensor : {x, y}) {
    tensor.register_hook([&](const Tensor&) {
      tasks.push_back(torch::autograd::get_current_graph_task_id());
      grad_modes.push_back(torch::GradMode::is_enabled());
    });
  }
  torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_NE(tasks[0], -1);
  EXPECT_EQ(tasks[0], tasks[1]);
  EXPECT_EQ(grad_modes, (std::vector<bool>{true, true}));
}

TYPED_TEST(DeviceThreads, TheCurrentNodeIsExactOnEveryThread) {
  const Tensor x = device_leaf(0);
  const Tensor y = (x * 2).to(fake::device(1)).exp();
  std::vector<std::string> nodes;
  x.register_hook([&](const Tensor&) { nodes.push_back(torch::autograd::get_current_node()->name()); });
  y.register_hook([&](const Tensor&) { nodes.push_back(torch::autograd::get_current_node()->name()); });
  y.sum().backward();
  EXPECT_EQ(nodes, (std::vector<std::string>{"ExpBackward0", "torch::autograd::AccumulateGrad"}));
}

}  // namespace
