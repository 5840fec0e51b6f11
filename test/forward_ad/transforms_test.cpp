// grad, vmap and functional_call beside plain loops, and vmap rules of custom functions.
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "test/forward_ad/forward_ad_fixture.h"
#include "test/support/pch.h"

#include <torch/nn.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Transforms = ForwardAdTest;

Tensor loss(const Tensor& x) { return (x.sin() * x).sum(); }

// f of each row by itself.
template <typename F>
Tensor each_row(F f, const Tensor& x) {
  Tensors rows;
  for (const Tensor& row : x.unbind(0)) rows.push_back(f(row));
  return at::stack(rows);
}

TEST_F(Transforms, GradIsTheGradientOfPlainReverseMode) {
  const Tensor x = random({3}), leaf = x.clone().requires_grad_();
  loss(leaf).backward();
  EXPECT_TRUE(at::equal(grad(loss, x), leaf.grad()));
  const auto [gradient, value] = overdrive::grad_and_value(loss, x);
  EXPECT_TRUE(at::equal(gradient, leaf.grad()));
  EXPECT_TRUE(at::equal(value, loss(x)));
  const Tensors both = grad([](const Tensors& t) { return (t[0] * t[1]).sum(); }, Tensors{x, 2 * x});
  EXPECT_TRUE(close(both[0], 2 * x));
  EXPECT_TRUE(close(both[1], x));
  const auto with = grad_and_value([](const Tensor& t) { return with_aux(loss(t), {t * 5}); }, x);
  EXPECT_TRUE(close(with.aux[0], x * 5));
}

TEST_F(Transforms, GradNests) {
  const Tensor x = number(0.7);
  const auto first = [](const Tensor& t) { return grad([](const Tensor& u) { return u.pow(4); }, t); };
  EXPECT_TRUE(close(grad(first, x), 12 * x * x));
  EXPECT_TRUE(close(jvp(first, x, number(1)).tangent, 12 * x * x));
  const Tensor leaf = x.clone().requires_grad_();
  EXPECT_TRUE(close(torch::autograd::grad({first(leaf)}, {leaf})[0], 12 * x * x));
}

TEST_F(Transforms, VmapIsALoopOverRows) {
  const Tensor x = random({4, 3}), y = random({3, 4});
  const auto f = [](const Tensor& t) { return t.softmax(0) * t.norm(); };
  EXPECT_TRUE(close(vmap(f, x), each_row(f, x)));
  EXPECT_TRUE(close(vmap(f, x, {.in_dims = {1}, .out_dims = {-1}}), each_row(f, x.t()).t()));
  for (const int64_t chunk : {1, 3, 4, 9}) {
    EXPECT_TRUE(close(vmap(f, x, {.chunk_size = chunk}), each_row(f, x)));
    EXPECT_TRUE(close(vmap(f, x, {.out_dims = {1}, .chunk_size = chunk}), each_row(f, x).t()));
  }
  const auto product = [](const Tensors& t) -> Tensors { return {t[0].dot(t[1]), t[1] * 2}; };
  const Tensors dots = vmap(product, Tensors{x, y}, {.in_dims = {0, 1}, .out_dims = {0, 1}});
  EXPECT_TRUE(close(dots[0], (x * y.t()).sum(1)));
  EXPECT_TRUE(close(dots[1], y * 2));
  const Tensor w = random({3});
  const Tensors whole =
      vmap(product, Tensors{x, w}, {.in_dims = {0, std::nullopt}, .out_dims = {0, std::nullopt}});
  EXPECT_TRUE(close(whole[0], x.mv(w)));
  EXPECT_EQ(whole[1].sizes(), w.sizes()) << "one for all rows";
  EXPECT_EQ(vmap(product, Tensors{x, w}, {.in_dims = {0, std::nullopt}})[1].sizes(), at::IntArrayRef({4, 3}));
}

TEST_F(Transforms, VmapNestsWithDerivatives) {
  const Tensor x = random({4, 3});
  const auto gradient = [](const Tensor& row) { return grad(loss, row); };
  EXPECT_TRUE(close(vmap(gradient, x), each_row(gradient, x)));
  const auto hessians = [](const Tensor& row) { return hessian(loss, row); };
  EXPECT_TRUE(close(vmap(hessians, x), each_row(hessians, x)));
  const auto outer = [&](const Tensor& t) { return vmap(gradient, t).square().sum(); };
  const auto looped = [&](const Tensor& t) { return each_row(gradient, t).square().sum(); };
  EXPECT_TRUE(close(grad(outer, x), grad(looped, x)));
  EXPECT_TRUE(close(jvp(outer, x, x).tangent, jvp(looped, x, x).tangent));
  const auto twice = [](const Tensor& t) { return vmap([](const Tensor& u) { return u.exp().sum(); }, t); };
  EXPECT_TRUE(close(vmap(twice, random({2, 4, 3}).fill_(2)), at::full({2, 4}, 3 * std::exp(2.0), at::kDouble)));
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(Transforms, VmapDrawsWhatItIsTold) {
  const auto noise = [](const Tensor& t) { return t * 0 + at::rand({}, at::kDouble); };
  const Tensor x = at::ones({8}, at::kDouble);
  EXPECT_EQ(std::get<0>(at::_unique(vmap(noise, x, {.randomness = Randomness::kSame}))).numel(), 1);
  EXPECT_EQ(std::get<0>(at::_unique(vmap(noise, x, {.randomness = Randomness::kDifferent}))).numel(), 8);
  EXPECT_THAT(error_of([&] { vmap(noise, x); }), HasSubstr("randomness error mode"));
  EXPECT_TRUE(nothing_is_open());
}

// x^2 y with a rule for rows. The second argument may be shared by the rows.
struct SquareTimes : CustomJvp<SquareTimes> {
  static inline int mapped = 0;

  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& y) {
    ctx->save_for_backward({x, y});
    return x * x * y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {grads[0] * 2 * saved[0] * saved[1], grads[0] * saved[0] * saved[0]};
  }
  static Tensors jvp(const Tensors& in, const Tensors&, const Tensors& t) {
    return {2 * in[0] * in[1] * t[0] + in[0] * in[0] * t[1]};
  }
  static VmapResult vmap(const VmapInfo& info, const VmapDims& dims, const Tensors& inputs) {
    ++mapped;
    EXPECT_GE(info.batch_size, 3);
    Tensors rows;
    for (size_t i = 0; i < 2; ++i)
      rows.push_back(dims[i] ? inputs[i].movedim(*dims[i], 0) : inputs[i].unsqueeze(0));
    return {{SquareTimes::apply(rows[0], rows[1])}, {0}};
  }
};

TEST_F(Transforms, VmapOfACustomFunctionUsesItsRule) {
  const Tensor x = random({4, 3}), y = random({3});
  const auto f = [](const Tensor& a, const Tensor& b) { return SquareTimes::apply(a, b); };
  const VmapOptions second_is_shared{.in_dims = {0, std::nullopt}};
  SquareTimes::mapped = 0;
  const auto call = [&](const Tensors& t) { return f(t[0], t[1]); };
  EXPECT_TRUE(close(vmap(call, Tensors{x, y}, second_is_shared), x * x * y));
  EXPECT_EQ(SquareTimes::mapped, 1);
  const auto gradients = [&](const Tensors& t) {
    return grad([&](const Tensors& u) { return f(u[0], u[1]).sum(); }, t);
  };
  const Tensors rows = vmap(gradients, Tensors{x, y}, second_is_shared);
  EXPECT_TRUE(close(rows[0], 2 * x * y));
  EXPECT_TRUE(close(rows[1], x * x)) << "a gradient for each row, though the rows share the argument";
  const auto slopes = [&](const Tensors& t) { return jvp(call, t, {t[0], t[1]}).tangent; };
  EXPECT_TRUE(close(vmap(slopes, Tensors{x, y}, second_is_shared), 3 * x * x * y));
  const auto outside = [&](const Tensor& t) { return vmap(call, Tensors{t, y}, second_is_shared).sum(); };
  EXPECT_TRUE(close(grad(outside, x), 2 * x * y));
  EXPECT_TRUE(close(jvp(outside, x, x).tangent, (2 * x * x * y).sum()));
  const auto second = [&](const Tensor& row) {
    return hessian([&](const Tensor& u) { return f(u, y).sum(); }, row);
  };
  SquareTimes::mapped = 0;
  EXPECT_TRUE(close(vmap(
                        [&](const Tensor& row) {
                          return grad(
                              [&](const Tensor& t) {
                                return grad([&](const Tensor& u) { return f(u, y).sum(); }, t).sum();
                              },
                              row);
                        },
                        x),
                    (2 * y).expand({4, 3})));
  EXPECT_GT(SquareTimes::mapped, 0);
  EXPECT_TRUE(close(second(x[0]), at::diag(2 * y)));
}

class FunctionalCall : public ForwardAdTest {
 protected:
  FunctionalCall() : net_(torch::nn::Linear(3, 4), torch::nn::Tanh(), torch::nn::Linear(4, 2)) {
    net_->to(at::kDouble);
  }

  NamedTensors others() {
    NamedTensors tensors;
    for (const auto& named : net_->named_parameters())
      tensors[named.key()] = at::randn_like(named.value()).detach();
    return tensors;
  }
  // The value of the net with these parameters, set by hand.
  Tensor with(const NamedTensors& tensors, const Tensor& x) {
    torch::nn::Sequential copy(torch::nn::Linear(3, 4), torch::nn::Tanh(), torch::nn::Linear(4, 2));
    copy->to(at::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& named : copy->named_parameters()) named.value().copy_(tensors.at(named.key()));
    return copy->forward(x);
  }

  torch::nn::Sequential net_;
};

TEST_F(FunctionalCall, UsesTheGivenTensorsAndLeavesTheModuleAlone) {
  const NamedTensors tensors = others();
  const Tensor x = random({5, 3}), before = net_->forward(x);
  EXPECT_TRUE(at::equal(functional_call(net_, tensors, x), with(tensors, x)));
  EXPECT_TRUE(at::equal(net_->forward(x), before));
  EXPECT_TRUE(at::equal(functional_call(net_, {}, x), before));
  const NamedTensors swapped{{"0.bias", net_->named_parameters()["0.bias"] * 0 + 1}};
  EXPECT_FALSE(at::equal(functional_call(net_, swapped, x), before)) << "the others are the module's own";
}

TEST_F(FunctionalCall, GradientsReachTheGivenTensors) {
  NamedTensors tensors = others();
  const Tensor x = random({5, 3}), leaf = tensors["0.weight"].clone().requires_grad_();
  tensors["0.weight"] = leaf;
  functional_call(net_, tensors, x).sum().backward();
  const auto moved = [&](const Tensor& weight) {
    NamedTensors here = tensors;
    here["0.weight"] = weight;
    return with(here, x).sum();
  };
  for (const auto& parameter : net_->parameters()) EXPECT_FALSE(parameter.grad().defined());
  const Tensor step = random({4, 3}) * 1e-6;
  EXPECT_NEAR((moved(leaf.detach() + step) - moved(leaf.detach() - step)).item<double>(),
              2 * (leaf.grad() * step).sum().item<double>(), 1e-11);
}

TEST_F(FunctionalCall, WorksInsideDriversAndMapsEnsembles) {
  const Tensor x = random({5, 3});
  const NamedTensors one = others(), two = others();
  const auto value = [&](const Tensor& weight) {
    NamedTensors here = one;
    here["0.weight"] = weight;
    return functional_call(net_, here, x).sum();
  };
  Tensor leaf = one.at("0.weight").clone().requires_grad_();
  value(leaf).backward();
  const Tensor want = leaf.grad();
  EXPECT_TRUE(close(grad(value, one.at("0.weight")), want));
  EXPECT_TRUE(close(jvp(value, one.at("0.weight"), at::ones({4, 3}, at::kDouble)).tangent, want.sum()));
  const auto member = [&](const Tensors& weights) {
    NamedTensors here;
    size_t next = 0;
    for (const auto& [name, tensor] : one) here[name] = weights[next++];
    return functional_call(net_, here, x);
  };
  Tensors stacked;
  for (const auto& [name, tensor] : one) stacked.push_back(at::stack({tensor, two.at(name)}));
  EXPECT_TRUE(close(vmap(member, stacked), at::stack({with(one, x), with(two, x)})));
  const auto per_sample = [&](const Tensor& row) {
    return grad(
        [&](const Tensor& w) {
          NamedTensors here = one;
          here["0.weight"] = w;
          return functional_call(net_, here, row).sum();
        },
        one.at("0.weight"));
  };
  EXPECT_TRUE(close(vmap(per_sample, x).sum(0), want));
}

TEST_F(FunctionalCall, WritesGoToTheGivenBuffers) {
  torch::nn::BatchNorm1d norm(3);
  norm->to(at::kDouble);
  const Tensor x = random({5, 3}), mean = at::zeros({3}, at::kDouble);
  functional_call(norm, {{"running_mean", mean}}, x);
  EXPECT_TRUE(close(mean, 0.1 * x.mean(0)));
  EXPECT_TRUE(at::equal(norm->running_mean, at::zeros({3}, at::kDouble)));
}

struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};
struct WithFunctionImpl : torch::nn::Module {
  explicit WithFunctionImpl(bool plain)
      : weight(register_parameter("weight", at::ones({3}, at::kDouble))), plain_(plain) {}
  Tensor forward(const Tensor& x) {
    return plain_ ? Doubled::apply(weight) * x : SquareTimes::apply(weight, x);
  }
  Tensor weight;
  bool plain_;
};
TORCH_MODULE(WithFunction);

// Such a Function would give the gradient to the module's own weight, and nobody would know.
TEST_F(FunctionalCall, RefusesAFunctionThatGetsAParameterAndGivesOneToCustomFunctions) {
  const Tensor x = random({3}), given = random({3});
  const auto value = [&](bool plain) {
    return [plain, x](const Tensor& w) {
      return functional_call(WithFunction(plain), {{"weight", w}}, x).sum();
    };
  };
  EXPECT_THAT(error_of([&] { value(true)(given.clone().requires_grad_()); }),
              HasSubstr("derive that from CustomJvp"));
  EXPECT_THAT(error_of([&] { grad(value(true), given); }), HasSubstr("CustomJvp"));
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(close(value(true)(given), (2 * given * x).sum())) << "without a gradient there is none to lose";
  }
  EXPECT_TRUE(close(grad(value(false), given), 2 * given * x));
  EXPECT_TRUE(close(jvp(value(false), given, given).tangent, (2 * given * given * x).sum()));
}

TEST_F(FunctionalCall, ACheckpointedRegionRunsAgainWithTheGivenTensors) {
  struct RegionImpl : torch::nn::Module {
    RegionImpl(const torch::nn::Sequential& net, CheckpointForm form)
        : net_(register_module("net", net)), form_(form) {}
    Tensor forward(const Tensor& t) {
      return checkpointed(
          {.form = form_}, [net = net_](const Tensor& u) mutable { return net->forward(u); }, t);
    }
    torch::nn::Sequential net_;
    CheckpointForm form_;
  };
  const ScopedInstall installed;
  const Tensor x = random({5, 3}).requires_grad_();
  NamedTensors tensors = others(), named;
  Tensor leaf = tensors["2.weight"].clone().requires_grad_();
  tensors["2.weight"] = leaf;
  for (const auto& [name, tensor] : tensors) named["net." + name] = tensor;
  const auto in_form = [&](CheckpointForm form) {
    return functional_call(std::make_shared<RegionImpl>(net_, form), named, x).sum();
  };
  in_form(CheckpointForm::kOnDemand).backward();
  const Tensor got = leaf.grad().clone();
  leaf.mutable_grad() = Tensor();
  functional_call(net_, tensors, x).sum().backward();
  EXPECT_TRUE(at::equal(got, leaf.grad()));
  EXPECT_THAT(error_of([&] { in_form(CheckpointForm::kEarly); }), HasSubstr("must be of the form on demand"));
}

}  // namespace
}  // namespace overdrive::forward_ad
