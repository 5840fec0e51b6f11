// Regions inside forward mode: derivatives of functions that checkpoint a part of themselves.
#include "checkpoint/chain/sequential.h"
#include "forward_ad/forward_ad.h"
#include "test/checkpoint/checkpoint_fixture.h"

namespace overdrive::checkpoint {
namespace {

namespace fwd = forward_ad;

OVERDRIVE_BOTH_FORMS(ForwardMode);

TEST_P(ForwardMode, DerivativesAreThoseOfThePlainFunction) {
  const auto plain = [this](const Tensor& t) { return block(t.sin()); };
  const auto region = [this](const Tensor& t) {
    return checkpoint(
        options(), [this](const Tensor& u) { return block(u); }, t.sin());
  };
  const Tensor at = x.detach(), v = at::randn({4, 8});
  EXPECT_TRUE(same_bits(fwd::jvp(region, at, v).tangent.detach(), fwd::jvp(plain, at, v).tangent.detach()));
  EXPECT_TRUE(same_bits(fwd::jvp(region, at, v).value.detach(), plain(at).detach()));
  EXPECT_TRUE(same_bits(fwd::vjp(region, at).pullback(v).detach(), fwd::vjp(plain, at).pullback(v).detach()));
  EXPECT_TRUE(same_bits(fwd::jacfwd(region, at).detach(), fwd::jacfwd(plain, at).detach()));
  EXPECT_TRUE(same_bits(fwd::jacrev(region, at).detach(), fwd::jacrev(plain, at).detach()));
}

TEST_P(ForwardMode, SecondDerivativesAreThoseOfThePlainFunction) {
  const auto plain = [this](const Tensor& t) { return block(t.sin()).square().sum(); };
  const auto region = [this](const Tensor& t) {
    return checkpoint(
               options(), [this](const Tensor& u) { return block(u); }, t.sin())
        .square()
        .sum();
  };
  const Tensor at = x.detach(), v = at::randn({4, 8});
  for (const auto mode : {fwd::HvpMode::kForwardOverReverse, fwd::HvpMode::kReverseOverReverse}) {
    const auto want = fwd::hvp(plain, at, v, mode), got = fwd::hvp(region, at, v, mode);
    EXPECT_TRUE(same_bits(got.gradient.detach(), want.gradient.detach()));
    EXPECT_TRUE(same_bits(got.product.detach(), want.product.detach()));
  }
  EXPECT_TRUE(same_bits(fwd::hessian(region, at).detach(), fwd::hessian(plain, at).detach()));
}

// The result of a driver is part of the graph around it; the region inside belongs to that graph, too.
TEST_P(ForwardMode, ParametersGetTheirGradientsThroughADriver) {
  const Tensor v = at::randn({4, 8});
  const auto slope = [&](const auto& f) { return fwd::jvp(f, x.detach(), v).tangent; };
  expect_same([&] { return slope([&](const Tensor& t) { return block(t); }); },
              [&] {
                return slope([&](const Tensor& t) {
                  return checkpoint(
                      options(), [&](const Tensor& u) { return block(u); }, t);
                });
              });
  EXPECT_TRUE(weight.grad().defined());
}

// {x, tangent v} --> y: the tangent of the gradient is the Hessian times v.
TEST_P(ForwardMode, TheGradientOfADualHasItsTangent) {
  const Tensor v = at::randn({4, 8});
  const auto product = [&](bool plain) {
    const auto level = torch::autograd::forward_ad::enter_dual_level();
    const Tensor dual = at::_make_dual(x, v, 0);
    const auto f = [this](const Tensor& t) { return block(t); };
    const Tensor y = plain ? f(dual) : checkpoint(options(), f, dual);
    const Tensor gradient = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    Tensors both{std::get<0>(at::_unpack_dual(gradient, 0)).detach().clone(),
                 std::get<1>(at::_unpack_dual(gradient, 0)).detach().clone()};
    torch::autograd::forward_ad::exit_dual_level(level);
    return both;
  };
  const Tensors want = product(true), got = product(false);
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
}

// The second run is in the layers of the first: none.
TEST_P(ForwardMode, ALevelThatIsOpenInTheBackwardIsNotAroundTheRecomputation) {
  const auto in_layers = [] {
    return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  };
  std::vector<bool> seen;
  const auto f = [&](const Tensor& t) {
    seen.push_back(in_layers());
    return block(t);
  };
  const auto backward_inside = [&](const Tensor& loss) {
    clear_gradients();
    const fwd::DualLevel level;
    EXPECT_TRUE(in_layers());
    loss.backward();
  };
  backward_inside(block(x).sum());
  const Tensor want = x.grad().clone();
  backward_inside(checkpoint(options(), f, x).sum());
  EXPECT_TRUE(same_bits(x.grad().clone(), want));
  EXPECT_THAT(seen, ElementsAre(false, false));
  if (GetParam() == Form::kOnDemand) return;
  const Layer layer = [this](const Tensor& t) { return block(t); };
  backward_inside(layer(layer(layer(x))).sum());
  const Tensor want_chain = x.grad().clone();
  backward_inside(checkpoint_sequential({layer, layer, layer}, x, Revolve{1}).sum());
  EXPECT_TRUE(same_bits(x.grad().clone(), want_chain));
}

TEST_P(ForwardMode, NothingRunsTwiceThere) {
  int runs = 0;
  const Tensor v = at::randn({4, 8});
  fwd::jvp(
      [&](const Tensor& t) {
        return checkpoint(
            options(),
            [&](const Tensor& u) {
              ++runs;
              return block(u);
            },
            t);
      },
      x, v);
  EXPECT_EQ(runs, 1);
}

// What the function captures is not looked at, but what comes of it is: else the tangent would be lost.
TEST_P(ForwardMode, ATangentThatComesFromOutsideIsAnError) {
  const auto level = torch::autograd::forward_ad::enter_dual_level();
  const Tensor dual = at::_make_dual(weight, at::ones_like(weight), 0);
  const Layer layer = [dual](const Tensor& t) { return at::linear(t, dual); };
  const std::string alone = error_of([&] { checkpoint(options(), layer, x); });
  const std::string in_a_chain = error_of([&] { checkpoint_sequential({layer, layer}, x, Revolve{1}); });
  const Tensor given = checkpoint(
      options(), [](const Tensor& t, const Tensor& w) { return at::linear(t, w); }, x, dual);
  const Tensor want = std::get<1>(at::_unpack_dual(layer(x), 0));
  EXPECT_TRUE(same_bits(std::get<1>(at::_unpack_dual(given, 0)).detach(), want.detach()));
  torch::autograd::forward_ad::exit_dual_level(level);
  for (const std::string& error : {alone, in_a_chain}) {
    EXPECT_THAT(error, HasSubstr("gave a tensor with a tangent of forward mode, though no input has one"));
  }
}

using ForwardModeChains = CheckpointTest;
TEST_F(ForwardModeChains, RunPlainlyWithRevolve) {
  const Layer layer = [this](const Tensor& t) { return block(t); };
  const auto chain = [&](const Tensor& t) {
    return checkpoint_sequential({layer, layer, layer}, t, Revolve{2});
  };
  const auto plain = [&](const Tensor& t) { return layer(layer(layer(t))); };
  const Tensor v = at::randn({4, 8});
  EXPECT_TRUE(same_bits(fwd::jvp(chain, x, v).tangent.detach(), fwd::jvp(plain, x, v).tangent.detach()));
  EXPECT_TRUE(same_bits(fwd::jacfwd(chain, x).detach(), fwd::jacfwd(plain, x).detach()));
}

}  // namespace
}  // namespace overdrive::checkpoint
