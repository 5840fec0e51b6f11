// Newton with conjugate gradients: second-order training of a small MLP. Each step solves  H p = -g  for the
// direction p, where H is the Hessian of the loss, without ever forming H: conjugate gradients ask for
// products  H v  only.
//
// What to look for: a product is one call of forward_ad::hvp(), forward over reverse: the gradient is computed
// by a backward, and forward mode differentiates that backward along v. A dozen products make a step, and a
// few dozen steps do what takes a first-order method hundreds.
#include "examples/data/digits.h"
#include "examples/trainers/trainer.h"
#include "forward_ad/forward_ad.h"

#include <cmath>

namespace overdrive::trainers {

namespace {

namespace F = torch::nn::functional;
using forward_ad::Tensors;

constexpr int kProducts = 12;  // at most, a step

// Lists of tensors as the vectors of the method.
double dot(const Tensors& a, const Tensors& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] * b[i]).sum().item<double>();
  return sum;
}
Tensors plus(const Tensors& a, double scale, const Tensors& b) {
  Tensors sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i] * scale);
  return sum;
}

class NewtonCg final : public Trainer {
 public:
  explicit NewtonCg(const Setup& setup) : Trainer(setup), data_(data::load_digits()) {
    auto layer = [this](const std::string& name, int64_t in, int64_t out) {
      const double spread = 1 / std::sqrt(static_cast<double>(in));
      register_parameter(name + "_weight", torch::empty({out, in}).uniform_(-spread, spread));
      register_parameter(name + "_bias", torch::zeros({out}));
    };
    layer("first", 64, kHidden);
    layer("second", kHidden, kHidden);
    layer("last", kHidden, 10);
    damping_ = register_buffer("damping", torch::tensor(1.0));
    // Of a batch (images, wanted) and weights; of these and a vector.
    loss_ = add_function([](const Tensors& in) { return Tensors{loss_of(in)(weights_in(in))}; });
    gradient_ = add_function([](const Tensors& in) {
      auto [loss, gradient] = value_and_gradient(loss_of(in), weights_in(in));
      gradient.push_back(loss);
      return gradient;
    });
    product_ = add_function([](const Tensors& in) {
      return forward_ad::hvp(loss_of(in), weights_in(in), Tensors(in.begin() + 2 + kWeights, in.end())).product;
    });
  }

  double step(Meter& meter) override {
    // The whole step is arithmetic on values; the drivers keep whatever graph they need.
    torch::NoGradGuard no_grad;
    const auto pick = torch::randint(data_.train.labels.size(0), {kBatch}, generator(), torch::kInt64);
    const auto images = place(data_.train.images.index_select(0, pick)).flatten(1);
    const auto labels = place(data_.train.labels.index_select(0, pick));
    // Cross entropy spelled out: LibTorch has no forward rules for the backwards of nll_loss and log_softmax.
    const auto wanted = place(F::one_hot(labels, 10).to(torch::kFloat32));
    auto with_batch = [&](std::initializer_list<Tensors> lists) {
      Tensors all{images, wanted};
      for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
      return all;
    };

    Tensors weights;
    for (const auto& parameter : parameters()) weights.push_back(parameter.detach());
    Tensors gradient = meter.driver([&] { return call(gradient_, with_batch({weights})); });
    const double loss = gradient.back().item<double>();
    gradient.pop_back();
    const double damping = damping_.item<double>();
    auto product = [&](const Tensors& v) {
      return plus(meter.driver([&] { return call(product_, with_batch({weights, v})); }), damping, v);
    };
    auto loss_at = [&](const Tensors& there) { return call(loss_, with_batch({there}))[0]; };
    move_along(solve(product, gradient), loss, loss_at, weights, meter);
    return loss;
  }

  double evaluate() override {
    torch::NoGradGuard no_grad;
    return data::accuracy(scores(parameters(), place(data_.test.images).flatten(1)), data_.test.labels);
  }

 private:
  static constexpr int64_t kBatch = 512;
  static constexpr int64_t kHidden = 24;
  static constexpr int kWeights = 6;

  static torch::Tensor scores(const Tensors& w, const torch::Tensor& images) {
    // Smooth, so that there is a second derivative to speak of.
    auto x = torch::tanh(F::linear(images, w[0], w[1]));
    x = torch::tanh(F::linear(x, w[2], w[3]));
    return F::linear(x, w[4], w[5]);
  }

  static std::function<torch::Tensor(const Tensors&)> loss_of(const Tensors& batch) {
    return [images = batch[0], wanted = batch[1]](const Tensors& weights) {
      const auto guess = scores(weights, images);
      return (guess.exp().sum(1).log() - (guess * wanted).sum(1)).mean();
    };
  }
  static Tensors weights_in(const Tensors& in) { return {in.begin() + 2, in.begin() + 2 + kWeights}; }

  template <typename Loss>
  static std::pair<torch::Tensor, Tensors> value_and_gradient(const Loss& loss_at, const Tensors& weights) {
    const auto [loss, pullback] = forward_ad::vjp(loss_at, weights);
    return {loss, pullback(torch::ones_like(loss))};
  }

  // Conjugate gradients for  H p = -g,  stopped early: where it is good enough, or where H bends downwards.
  template <typename Product>
  static Tensors solve(const Product& product, const Tensors& gradient) {
    Tensors solution, residual;
    for (const auto& g : gradient) {
      solution.push_back(torch::zeros_like(g));
      residual.push_back(-g);
    }
    Tensors direction = residual;
    const double start = dot(residual, residual);
    double now = start;
    for (int i = 0; i < kProducts && now > 0.01 * start; ++i) {
      const Tensors bent = product(direction);
      const double curvature = dot(direction, bent);
      if (curvature <= 0) return i == 0 ? direction : solution;
      const double length = now / curvature;
      solution = plus(solution, length, direction);
      residual = plus(residual, -length, bent);
      const double before = std::exchange(now, dot(residual, residual));
      direction = plus(residual, now / before, direction);
    }
    return solution;
  }

  // Takes the step, or a half, a quarter, ... of it, whichever is the first to make the loss fall. A step taken
  // whole says that the quadratic picture is good: less damping next time.
  template <typename Loss>
  void move_along(const Tensors& direction, double loss, const Loss& loss_at, const Tensors& weights,
                  Meter& meter) {
    constexpr int kHalvings = 5;
    double length = 1;
    for (int i = 0; i < kHalvings; ++i, length /= 2) {
      const Tensors there = plus(weights, length, direction);
      const double found = meter.forward([&] { return loss_at(there); }).template item<double>();
      if (found >= loss) continue;
      auto targets = parameters();
      for (size_t p = 0; p < targets.size(); ++p) targets[p].copy_(there[p]);
      break;
    }
    damping_.mul_(length == 1 ? 0.7 : 2).clamp_(1e-3, 10);
  }

  const data::Digits data_;
  size_t loss_ = 0, gradient_ = 0, product_ = 0;
  torch::Tensor damping_;  // a buffer: a training that is resumed goes on with it
};

}  // namespace

TrainerInfo newton_cg() {
  return {.name = "newton_cg",
          .what = "MLP on digits, trained by Newton's method with conjugate gradients",
          .shows = "forward over reverse: Hessian times vector",
          .quality = "test accuracy",
          .good = 0.93,
          .default_steps = 40,
          .make = [](const Setup& setup) { return std::make_unique<NewtonCg>(setup); }};
}

}  // namespace overdrive::trainers
