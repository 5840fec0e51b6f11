// Every function of forward_ad/ is given what makes no sense.
#include "test/forward_ad/forward_ad_fixture.h"
#include "test/support/nonsense.h"
#include "test/support/pch.h"

#include <torch/nn.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A Function as LibTorch has it: no rule for levels and layers.
struct Plain : torch::autograd::Function<Plain> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

using ForwardAdNonsense = ForwardAdTest;

TEST_F(ForwardAdNonsense, IsRefusedByTheDrivers) {
  const Tensor x = random({3}), whole = at::ones({3}, at::kLong), none,
               complex = at::randn({3}, at::kComplexDouble);
  const Tensor elsewhere = at::empty({3}, at::TensorOptions().dtype(at::kDouble).device(at::kMeta));
  const auto cube = [](const Tensor& t) { return t.pow(3); };
  const auto sum = [](const Tensor& t) { return t.pow(3).sum(); };
  const auto nothing = [](const Tensor&) { return Tensor(); };
  const auto no_list = [](const Tensor&) { return Tensors(); };
  const auto first = [](const Tensors& t) { return t[0]; };
  const auto first_sum = [](const Tensors& t) { return t[0].sum(); };
  const auto plain = [](const Tensor& t) { return Plain::apply(t); };
  const auto plain_sum = [](const Tensor& t) { return Plain::apply(t).sum(); };
  const std::function<Tensor(const Tensor&)> empty;
  const std::string way_out = "overdrive::CustomJvp";
  test::expect_refused({
      {"jvp of integers", [&] { jvp(cube, whole, whole); }, {"long", "only floating point and complex"}},
      {"jvp along integers", [&] { jvp(cube, x, whole); }, {"double", "long"}},
      {"jvp of none", [&] { jvp(cube, none, none); }, {"jvp: input 0 is an undefined tensor"}},
      {"jvp of an empty list", [&] { jvp(first, Tensors{}, {}); }, {"jvp: the list of inputs is empty"}},
      {"jvp on two devices", [&] { jvp(cube, x, elsewhere); }, {"cpu", "meta"}},
      {"jvp of a function that gives none",
       [&] { jvp(nothing, x, x); },
       {"jvp: result 0", "is undefined", "Return"}},
      {"jvp of a function that gives no list",
       [&] { jvp(no_list, x, x); },
       {"jvp: the function returned an empty"}},
      {"jvp of an empty function", [&] { jvp(empty, x, x); }, {"an empty function"}},
      {"jvp of a plain Function", [&] { jvp(plain, x, x); }, {"jvp", way_out, "overdrive::DoubleVjp"}},
      {"vjp of integers", [&] { vjp(cube, whole); }, {"vjp: the inputs must be", "input 0", "long", "Convert"}},
      {"vjp of none", [&] { vjp(cube, none); }, {"vjp: input 0 is an undefined tensor"}},
      {"vjp of an empty list", [&] { vjp(first, Tensors{}); }, {"vjp: the list of inputs is empty"}},
      {"vjp of a list with integers",
       [&] {
         vjp(first, Tensors{x, whole});
       },
       {"vjp", "input 1", "long"}},
      {"vjp of a function that gives none", [&] { vjp(nothing, x); }, {"vjp: result 0", "is undefined"}},
      {"vjp of an empty function", [&] { vjp(empty, x); }, {"an empty function"}},
      {"vjp of a plain Function", [&] { vjp(plain, x); }, {"vjp", way_out}},
      {"pullback of another shape", [&] { vjp(cube, x).pullback(random({2})); }, {"output 0 has shape [3]"}},
      {"jacfwd of integers", [&] { jacfwd(cube, whole); }, {"jacfwd: the inputs must be real", "long"}},
      {"jacfwd of complex numbers", [&] { jacfwd(cube, complex); }, {"jacfwd: the inputs must be real"}},
      {"jacfwd of none", [&] { jacfwd(cube, none); }, {"jacfwd: input 0 is an undefined"}},
      {"jacfwd of a chunk of 0",
       [&] { jacfwd(cube, x, {.chunk_size = 0}); },
       {"chunk_size must be at least 1"}},
      {"jacrev of integers", [&] { jacrev(cube, whole); }, {"jacrev: the inputs must be real", "long"}},
      {"jacrev of a negative chunk", [&] { jacrev(cube, x, {.chunk_size = -2}); }, {"chunk_size", "-2"}},
      {"jacrev of a plain Function", [&] { jacrev(plain, x); }, {way_out}},
      {"hessian of integers", [&] { hessian(sum, whole); }, {"hessian: the inputs must be real", "long"}},
      {"hessian of an empty list",
       [&] { hessian(first_sum, Tensors{}); },
       {"hessian: the list of inputs is empty"}},
      {"hvp of integers", [&] { hvp(sum, whole, whole); }, {"hvp: the inputs must be", "long"}},
      {"hvp of too few vectors",
       [&] {
         hvp(first_sum, Tensors{x, x}, {x});
       },
       {"hvp: there are 2 inputs but 1"}},
      {"hvp of a vector", [&] { hvp(cube, x, x); }, {"hvp: the function must return one number"}},
      {"hvp of a plain Function", [&] { hvp(plain_sum, x, x); }, {way_out}},
      {"a negative order",
       [&] { elementwise_derivative(cube, x, -1); },
       {"elementwise_derivative", "negative"}},
      {"an order of none", [&] { elementwise_derivative(cube, none, 1); }, {"elementwise_derivative: input 0"}},
      {"an order of integers",
       [&] { elementwise_derivative(cube, whole, 1); },
       {"elementwise_derivative", "long"}},
      {"an order of an empty function",
       [&] { elementwise_derivative(nullptr, x, 1); },
       {"the function is empty"}},
  });
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(ForwardAdNonsense, IsRefusedByTheTransforms) {
  const Tensor x = random({3, 2}), whole = at::ones({3}, at::kLong), none;
  const auto sum = [](const Tensor& t) { return t.pow(3).sum(); };
  const auto cube = [](const Tensor& t) { return t.pow(3); };
  const auto both = [](const Tensors& t) { return t[0] * t[1]; };
  const auto noise = [](const Tensor& t) { return t + at::rand_like(t); };
  const auto nothing = [](const Tensor&) { return Tensor(); };
  const auto plain = [](const Tensor& t) { return Plain::apply(t); };
  const std::function<Tensor(const Tensor&)> empty;
  const auto randomness = static_cast<Randomness>(7);
  torch::nn::Linear linear(2, 2);
  torch::nn::Linear no_module = nullptr;
  test::expect_refused({
      {"grad of integers", [&] { grad(sum, whole); }, {"grad: the inputs must be", "long"}},
      {"grad of none", [&] { grad(sum, none); }, {"grad: input 0 is an undefined"}},
      {"grad of a vector",
       [&] { grad(cube, x); },
       {"grad: the function must return one real number", "[3, 2]", "sum()"}},
      {"grad of an empty function", [&] { grad(empty, x); }, {"an empty function"}},
      {"grad_and_value of integers", [&] { grad_and_value(sum, whole); }, {"grad_and_value", "long"}},
      {"vmap of none", [&] { vmap(cube, none); }, {"vmap: input 0 is an undefined"}},
      {"vmap of a number", [&] { vmap(cube, number(1)); }, {"in_dims[0] is 0", "no dimension to map over"}},
      {"vmap of an empty list", [&] { vmap(both, Tensors{}); }, {"vmap: the list of inputs is empty"}},
      {"vmap over a dimension that is not there",
       [&] { vmap(cube, x, {.in_dims = {2}}); },
       {"in_dims[0] is 2", "-2 to 1"}},
      {"vmap over too many",
       [&] {
         vmap(cube, x, {.in_dims = {0, 0}});
       },
       {"1 inputs but 2 in_dims"}},
      {"vmap over none", [&] { vmap(cube, x, {.in_dims = {std::nullopt}}); }, {"no input is mapped"}},
      {"vmap over other rows",
       [&] {
         vmap(both, Tensors{x, x.t()});
       },
       {"input 1 has 2 rows", "input 0 has 3"}},
      {"vmap to a dimension that is not there",
       [&] { vmap(cube, x, {.out_dims = {3}}); },
       {"out_dims[0] is 3"}},
      {"vmap to too many",
       [&] {
         vmap(cube, x, {.out_dims = {0, 0}});
       },
       {"1 results, but there are 2 out_dims"}},
      {"vmap to none",
       [&] { vmap(cube, x, {.out_dims = {std::nullopt}}); },
       {"the same for all rows, but it depends"}},
      {"vmap of noise", [&] { vmap(noise, x); }, {"randomness"}},
      {"vmap of a randomness",
       [&] { vmap(cube, x, {.randomness = randomness}); },
       {"randomness is 7", "kError"}},
      {"vmap of a chunk of 0", [&] { vmap(cube, x, {.chunk_size = 0}); }, {"chunk_size must be at least 1"}},
      {"vmap of a function that gives none", [&] { vmap(nothing, x); }, {"vmap: result 0", "is undefined"}},
      {"vmap of a plain Function", [&] { vmap(plain, x); }, {"vmap", "overdrive::CustomJvp"}},
      {"a call of no module",
       [&] { functional_call(no_module, {}, x); },
       {"functional_call: the module is empty"}},
      {"a call with another name",
       [&] {
         functional_call(linear, {{"wieght", x}}, x);
       },
       {"\"wieght\"", "weight, bias"}},
      {"a call with none",
       [&] {
         functional_call(linear, {{"bias", none}}, x);
       },
       {"\"bias\" is undefined"}},
      {"a call with another shape",
       [&] {
         functional_call(linear, {{"bias", x}}, x);
       },
       {"\"bias\" has shape [2]", "[3, 2]"}},
  });
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(ForwardAdNonsense, IsRefusedByGradcheck) {
  const Tensor x = random({3}).requires_grad_(), none, single = at::ones({3}).requires_grad_();
  const auto cube = [](const Tensor& t) { return t.pow(3); };
  const auto whole = [](const Tensor& t) { return t.argmax(); };
  const auto noise = [](const Tensor& t) { return t * at::rand_like(t); };
  const auto nothing = [](const Tensor&) { return Tensor(); };
  const auto apart = [](const Tensor& t) { return t.detach() * 2; };
  const auto both = [](const Tensors& t) { return t[0]; };
  test::expect_refused({
      {"of none", [&] { gradcheck(cube, none); }, {"gradcheck: input 0 is an undefined"}},
      {"of an empty list", [&] { gradcheck(both, Tensors{}); }, {"gradcheck: the list of inputs is empty"}},
      {"of a constant", [&] { gradcheck(cube, x.detach()); }, {"no input requires grad", "requires_grad_()"}},
      {"of floats", [&] { gradcheck(cube, single); }, {"input 0", "float", "at::kDouble"}},
      {"of nothing", [&] { gradcheck(cube, x, {.check_backward_ad = false}); }, {"are both false"}},
      {"with a step of 0", [&] { gradcheck(cube, x, {.eps = 0}); }, {"eps must be positive"}},
      {"with a negative tolerance", [&] { gradcheck(cube, x, {.atol = -1}); }, {"must not be negative"}},
      {"of a function to integers", [&] { gradcheck(whole, x); }, {"nothing that can have a gradient"}},
      {"of noise", [&] { gradcheck(noise, x); }, {"other results when it is called again", "seed"}},
      {"of a function that gives none",
       [&] { gradcheck(nothing, x); },
       {"result of the function is undefined"}},
      {"of gradients that are not there",
       [&] { gradgradcheck(apart, x); },
       {"gradgradcheck: no result", "requires grad"}},
      {"of too many gradients",
       [&] {
         gradgradcheck(cube, x, {x, x});
       },
       {"2 grad_outputs for 1 results"}},
  });
}

}  // namespace
}  // namespace overdrive::forward_ad
