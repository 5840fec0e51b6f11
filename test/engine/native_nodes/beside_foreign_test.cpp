// Nodes that the engine runs itself beside hooks and nodes of the program: one foreign node costs one node, and
// what foreign code sees is what it sees on stock.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <functional>

namespace overdrive::test {
namespace {

using at::Tensor;
using Log = std::vector<std::string>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor leaf(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).div_(7).reshape(sizes).clone().requires_grad_();
}

struct Identity : torch::autograd::Function<Identity> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return gradients; }
};

// All that a hook can see of a gradient without a change.
std::string looks(const Tensor& g) {
  std::string text =
      c10::str(g.sizes(), g.strides(), " +", g.storage_offset(), " v", g._version(), " owners ", g.use_count(),
               " of storage ", g.storage().use_count(), " grad ", g.requires_grad(), " keys ", g.key_set(),
               " sum ", g.detach().sum().item<float>());
  if (g.is_view()) text += c10::str(" view of ", g._base().sizes(), g._base().strides(), g._base().use_count());
  return text;
}

Log on_stock(const std::function<void(Log&)>& program) {
  Log log;
  program(log);
  return log;
}
Log on_overdrive(const std::function<void(Log&)>& program) {
  const ScopedInstall engine;
  reset_stats();
  return on_stock(program);
}
uint64_t own() {
  uint64_t n = 0;
  for (const auto& [type, count] : stats().own_nodes) n += count;
  return n;
}
void expect_same(const std::function<void(Log&)>& program) {
  const Log expected = on_stock(program), got = on_overdrive(program);
  EXPECT_EQ(got, expected);
  EXPECT_FALSE(expected.empty());
}

// {x} --Tanh x 10--> --Sum--> {loss}, with something foreign in the middle. The tanh behind the sum gets a
// gradient of strides of zero, and declines.
uint64_t native_nodes_of_chain(const std::function<Tensor(const Tensor&)>& in_the_middle) {
  const ScopedInstall engine;
  Tensor x = leaf({2, 3}), y = x;
  for (int i = 0; i < 5; ++i) y = y.tanh();
  y = in_the_middle(y);
  for (int i = 0; i < 5; ++i) y = y.tanh();
  const Tensor loss = y.sum();
  reset_stats();
  loss.backward();
  return own();
}

TEST(BesideForeign, OneForeignNodeCostsOneNode) {
  EXPECT_EQ(native_nodes_of_chain([](const Tensor& y) { return y; }), 11u);
  EXPECT_EQ(native_nodes_of_chain([](const Tensor& y) {
              y.register_hook([](const Tensor&) {});
              return y;
            }),
            10u);
  EXPECT_EQ(stats().declined_nodes.at("TanhBackward0: hook"), 1u);
  EXPECT_EQ(native_nodes_of_chain([](const Tensor& y) {
              y.retain_grad();
              return y;
            }),
            10u);
  EXPECT_EQ(native_nodes_of_chain([](const Tensor& y) { return Identity::apply(y); }), 11u)
      << "and one foreign";
}

TEST(BesideForeign, NodesThatAreRefusedAreCountedByReason) {
  const ScopedInstall engine;
  const auto refused = [](const char* reason) {
    const auto declined = stats().declined_nodes;
    const auto found = declined.find(std::string("TanhBackward0: ") + reason);
    return found == declined.end() ? 0 : found->second;
  };
  const Tensor x = leaf({2, 3});
  reset_stats();
  torch::autograd::grad({x.tanh().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true);
  EXPECT_EQ(refused("create_graph"), 1u);
  {
    const torch::autograd::DetectAnomalyGuard anomaly;
    x.tanh().sum().backward();
  }
  EXPECT_EQ(refused("anomaly"), 1u);
  EXPECT_EQ(own(), 0u);
}

// A hook on every kind of view that nodes make of a gradient.
TEST(BesideForeign, AHookSeesTheViewsOfStock) {
  const std::vector<std::function<Tensor(const Tensor&)>> views = {
      [](const Tensor& t) { return t.t(); },
      [](const Tensor& t) {
        return t.view({3, 2});
      },
      [](const Tensor& t) { return t.unsqueeze(0); },
      [](const Tensor& t) { return t.unsqueeze(0).squeeze(); },
      [](const Tensor& t) {
        return t.permute({1, 0});
      },
      [](const Tensor& t) {
        return t.expand({4, 2, 3});
      },
      [](const Tensor& t) { return t.sum(0); },
      [](const Tensor& t) { return t + t.sum(); },
      [](const Tensor& t) {
        return at::cat({t, t.t().reshape({2, 3})});
      },
      [](const Tensor& t) {
        return at::stack({t, t});
      },
      [](const Tensor& t) { return at::mm(t, t.t()); },
      [](const Tensor& t) { return t + t.sum(0); },
  };
  for (size_t i = 0; i < views.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same([&](Log& log) {
      const Tensor x = leaf({2, 3}), y = x.clone(), z = y * 2;
      const auto see = [&](const Tensor& g) { log.push_back(looks(g)); };
      y.register_hook(see);
      z.register_hook(see);
      x.register_hook(see);
      views[i](z).sin().sum().backward();
      log.push_back(looks(x.grad()));
    });
  }
}

// {x} --Relu--> {y} --Sum--+
//                          +--> {loss}, and the node of z, which comes first, puts a hook on y when the sum has
//                          its
// {x} --Identity--> {z} ---+    gradient or before.
TEST(BesideForeign, AHookThatAHookAddsSeesTheViewsOfStock) {
  expect_same([](Log& log) {
    const Tensor x = leaf({2, 3}), y = x.relu(), sum = y.sum(), z = Identity::apply(x), end = z.mean();
    const auto see = [&](const Tensor& g) { log.push_back(looks(g)); };
    end.register_hook([&](const Tensor&) { y.register_hook(see); });
    (sum + end).backward();
    log.push_back(looks(x.grad()));
  });
}

TEST(BesideForeign, AWeakOwnerSeesTheGradientEnd) {
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), a = x.exp(), b = a.sin();
    c10::weak_intrusive_ptr<c10::TensorImpl> weak(a.getIntrusivePtr());
    b.register_hook(
        [&](const Tensor& g) { weak = c10::weak_intrusive_ptr<c10::TensorImpl>(g.getIntrusivePtr()); });
    x.register_hook([&](const Tensor&) { log.push_back(weak.expired() ? "gone" : "alive"); });
    b.tanh().sum().backward();
    log.push_back(weak.expired() ? "gone" : "alive");
  });
}

TEST(BesideForeign, AGradientThatAHookKeepsIsNotWrittenOver) {
  expect_same([](Log& log) {
    const Tensor x = leaf({4});
    std::vector<Tensor> kept;
    std::vector<at::Storage> storages;
    Tensor y = x;
    for (int i = 0; i < 6; ++i) {
      y = i % 2 == 0 ? -y : y.tanh();
      if (i == 2) y.register_hook([&](const Tensor& g) { kept.push_back(g); });
      if (i == 4) y.register_hook([&](const Tensor& g) { storages.push_back(g.storage()); });
    }
    (y * y + y).sum().backward();
    log.push_back(looks(kept.at(0)));
    log.push_back(c10::str(static_cast<const float*>(storages.at(0).data())[1]));
    log.push_back(looks(x.grad()));
  });
}

// What a hook leaves behind holds for its own node, and for what the process has of it for all later ones.
TEST(BesideForeign, ModesThatAHookLeavesReachTheNodesThatTheyReachOnStock) {
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), y = x.exp(), z = y.sin();
    z.register_hook([](const Tensor&) { at::GradMode::set_enabled(true); });
    y.register_hook([&](const Tensor& g) { log.push_back(looks(g)); });
    z.sum().backward();
    log.push_back(looks(x.grad()));
  });
}

Log* ops_seen = nullptr;
TEST(BesideForeign, ACallbackThatAHookAddsSeesTheOperatorsOfLaterNodes) {
  expect_same([](Log& log) {
    ops_seen = &log;
    at::CallbackHandle handle{};
    const Tensor x = leaf({4}), y = x.exp(), z = y.tanh();
    z.register_hook([&](const Tensor&) {
      handle = at::addGlobalCallback(
          at::RecordFunctionCallback([](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
            ops_seen->push_back(op.name());
            return nullptr;
          }));
    });
    (z.neg() * 2).sum().backward();
    at::removeCallback(handle);
  });
}

// Sums of what a foreign node returns are loops of the engine's own, unless the node has left somebody who
// listens.
struct ListenedTo : torch::autograd::Function<ListenedTo> {
  static Tensor forward(AutogradContext*, const Tensor& x, const Tensor& y) { return x + y; }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    if (ops_seen == nullptr) return {gradients[0], gradients[0]};
    at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
          ops_seen->push_back(op.name());
          return nullptr;
        }));
    return {gradients[0], gradients[0]};
  }
};
TEST(BesideForeign, ACallbackThatANodeAddsSeesTheSumOfItsGradients) {
  expect_same([](Log& log) {
    ops_seen = &log;
    const Tensor x = leaf({4});
    ListenedTo::apply(x, x).tanh().sum().backward();
    EXPECT_NE(std::find(log.begin(), log.end(), "aten::add"), log.end());
    log.push_back(looks(x.grad()));
  });
}
TEST(BesideForeign, ASumOfATensorThatTheProgramHasIsANewTensor) {
  ops_seen = nullptr;
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), y = x.tanh(), gradient = at::ones({4});
    ListenedTo::apply(y, y).backward(gradient);
    log.push_back(looks(gradient));
    log.push_back(looks(x.grad()));
  });
}

TEST(BesideForeign, AHookThatAHookAddsIsCalled) {
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), y = x.exp(), z = y.tanh();
    z.register_hook([&](const Tensor&) {
      y.register_hook([&](const Tensor& g) {
        log.push_back(looks(g));
        return g * 3;
      });
    });
    z.sum().backward();
    log.push_back(looks(x.grad()));
  });
}

// A level of forward mode that a hook opens: the saved tensor has a tangent, and so has the gradient.
TEST(BesideForeign, ALevelThatAHookOpensGivesTangents) {
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), factor = at::ones({4}), y = x * factor, z = y.tanh();
    z.register_hook([&](const Tensor&) {
      torch::autograd::ForwardADLevel::get_next_idx();
      factor._set_fw_grad(at::ones({4}), 0, /*is_inplace_op=*/false);
    });
    x.register_hook([&](const Tensor& g) { log.push_back(g._fw_grad(0).defined() ? "tangent" : "none"); });
    z.sum().backward();
    torch::autograd::ForwardADLevel::release_idx(0);
  });
}

// The node of the program gives one tensor for two inputs, and memory that the program reads again.
TEST(BesideForeign, AGradientInMemoryOfTheProgramIsNotWrittenOver) {
  struct Lends : torch::autograd::Function<Lends> {
    static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& memory) {
      context->saved_data["memory"] = memory;
      return x.clone();
    }
    static variable_list backward(AutogradContext* context, const variable_list&) {
      return {context->saved_data["memory"].toTensor(), Tensor()};
    }
  };
  expect_same([](Log& log) {
    const Tensor x = leaf({4}), memory = at::ones({4});
    Lends::apply(x.neg().tanh(), memory).sum().backward();
    log.push_back(looks(memory));
    log.push_back(looks(x.grad()));
  });
}

}  // namespace
}  // namespace overdrive::test
