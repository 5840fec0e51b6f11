// Forward mode inside a captured step: zeros without memory, tangents' sizes that LibTorch finds on the device
// meta, and the rules of ours that make value and tangent in one pass over memory.
#include "forward_ad/forward_ad.h"
#include "test/replay/replay_fixture.h"

namespace overdrive::test {
namespace {

using forward_ad::jvp;

// u_t + u u_x - u_xx of a small net, with one level inside another.
TEST(CaptureForwardMode, DerivativesByInputsAndABackwardThroughThem) {
  SideBySide both([] {
    torch::nn::Sequential net(torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    Training training{.model = net.ptr(), .optimizer = adam()(net->parameters())};
    auto* optimizer = training.optimizer.get();
    training.step = [net, optimizer](const Tensors& in) mutable {
      const at::Tensor &t = in[0], &x = in[1];
      const auto u = [&](const at::Tensor& when, const at::Tensor& where) {
        return when * (1 - where * where) * net->forward(torch::cat({when, where}, 1)) - torch::sin(where);
      };
      optimizer->zero_grad();
      const at::Tensor one = torch::ones_like(x);
      const auto [value, u_t] = jvp([&](const at::Tensor& at) { return u(at, x); }, t, one);
      const auto slope = [&](const at::Tensor& at) {
        return jvp([&](const at::Tensor& there) { return u(t, there); }, at, one).tangent;
      };
      const auto [u_x, u_xx] = jvp(slope, x, one);
      at::Tensor loss = (u_t + value * u_x - 0.01 * u_xx).square().mean();
      loss.backward();
      optimizer->step();
      return loss.detach();
    };
    training.inputs = [](int i) { return batch_of(i, {16, 1}, {16, 1}); };
    return training;
  });
  EXPECT_EQ(both.run(40), "") << both.step().explain();
  EXPECT_GE(replays(both.step().stats()), 35u) << both.step().explain();
}

// Forward over reverse: the rules of products, squares and of the backwards of tanh and sigmoid. A recording of
// them makes the bits of an eager call by other operators.
TEST(CaptureForwardMode, ProductsWithTheHessian) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> activations{
      [](const at::Tensor& x) { return x.tanh(); }, [](const at::Tensor& x) { return x.sigmoid(); },
      [](const at::Tensor& x) { return x.square(); }, [](const at::Tensor& x) { return x * x.exp(); }};
  for (size_t which = 0; which < activations.size(); ++which) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      const auto product = [&](const Tensors& in) {
        const auto loss_at = [&](const Tensors& w) {
          return activations[which](in[0].matmul(w[0])).matmul(w[1]).square().mean();
        };
        return forward_ad::hvp(loss_at, Tensors{in[1], in[2]}, Tensors{in[3], in[4]}).product;
      };
      CapturedStep step(product, {});
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < 12; ++i) {
        Tensors in = batch_of(i, {7, 5}, {5, 3});
        for (const at::Tensor& each : {batch_of(i + 1, {3, 2}, {5, 3})[0], batch_of(i + 2, {5, 3}, {3, 2})[0],
                                       batch_of(i + 3, {3, 2}, {3, 2})[0]})
          in.push_back(each);
        for (at::Tensor& each : in) each = each.to(type);
        const Tensors expected = product(in), got = step.call(in);
        for (size_t k = 0; k < expected.size(); ++k)
          EXPECT_TRUE(same_bits(expected[k], got[k])) << which << " " << i;
      }
      EXPECT_GE(replays(step.stats()), 8u) << which << step.explain();
    }
  }
}

}  // namespace
}  // namespace overdrive::test
