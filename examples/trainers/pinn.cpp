// A physics-informed net: Burgers' equation  u_t + u u_x = nu u_xx,  a wave that steepens into a front. The net
// is u itself; it is trained until the equation holds at random points, and never sees a value of the solution.
//
// What to look for: the equation asks for derivatives of the net with respect to its inputs, u_xx the second.
// They come from forward mode, one level for u_x inside another for u_xx, at the price of a few forwards. The
// gradient with respect to the weights then is one ordinary backward through all of it.
#include "examples/data/burgers.h"
#include "examples/trainers/trainer.h"
#include "forward_ad/forward_ad.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;
using forward_ad::jvp;

constexpr int64_t kPoints = 256;
constexpr int64_t kNetWidth = 24;

nn::Sequential net() {
  return nn::Sequential(nn::Linear(2, kNetWidth), nn::Tanh(), nn::Linear(kNetWidth, kNetWidth), nn::Tanh(),
                        nn::Linear(kNetWidth, kNetWidth), nn::Tanh(), nn::Linear(kNetWidth, 1));
}

class Pinn final : public Trainer {
 public:
  explicit Pinn(const Setup& setup)
      : Trainer(setup), reference_(data::load_burgers()), net_(register_module("net", net())) {
    auto& optimizer = add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), 4e-3));
    learning_ = add_learning(optimizer, [this, &optimizer](const auto& batch, Meter& meter) {
      return minimise(meter, optimizer, [&] { return residual(batch[0], batch[1]).square().mean(); });
    });
  }

  double step(Meter& meter) override {
    const auto t = place(torch::rand({kPoints, 1}, generator()));
    const auto x = place(torch::rand({kPoints, 1}, generator()) * 2 - 1);
    return learn(learning_, {t, x}, meter).item<double>();
  }

  // How far the net is from the exact solution, relative to its size, on a grid.
  double evaluate() override {
    torch::NoGradGuard no_grad;
    const auto found = u(place(reference_.t), place(reference_.x)).to(torch::kCPU, torch::kFloat64);
    return ((found - reference_.u).norm() / reference_.u.norm()).item<double>();
  }

 private:
  // Built so that u(0, x) = -sin(pi x) and u(t, -1) = u(t, 1) = 0 hold whatever the net says.
  torch::Tensor u(const torch::Tensor& t, const torch::Tensor& x) {
    const auto free = net_->forward(torch::cat({t, x}, 1));
    return t * (1 - x * x) * free - torch::sin(x * std::numbers::pi);
  }

  // What the equation leaves over at each point: zero for a solution.
  torch::Tensor residual(const torch::Tensor& t, const torch::Tensor& x) {
    const auto one = torch::ones_like(x);
    const auto [value, u_t] = jvp([&](const torch::Tensor& at) { return u(at, x); }, t, one);
    auto slope = [&](const torch::Tensor& at) {
      return jvp([&](const torch::Tensor& there) { return u(t, there); }, at, one).tangent;
    };
    const auto [u_x, u_xx] = jvp(slope, x, one);
    return u_t + value * u_x - data::kBurgersViscosity * u_xx;
  }

  const data::Burgers reference_;
  nn::Sequential net_;
  size_t learning_;
};

}  // namespace

TrainerInfo pinn() {
  return {.name = "pinn",
          .what = "net that solves Burgers' equation",
          .shows = "forward mode inside forward mode, and a backward through both",
          .quality = "error to the exact solution",
          .more_is_better = false,
          .good = 0.05,
          .default_steps = 1500,
          .make = [](const Setup& setup) { return std::make_unique<Pinn>(setup); }};
}

}  // namespace overdrive::trainers
