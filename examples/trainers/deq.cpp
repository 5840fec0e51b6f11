// Deep equilibrium: a backward inside a backward. The layer's output is the fixed point z = f(z, x), found by
// iteration without a graph; its gradient is the solution of another fixed point, found while the backward is
// running.
//
// What to look for: the hook below runs torch::autograd::grad() a dozen times from inside loss.backward(). The
// stock engine handles such reentrant calls on queues and, from a depth of 60 on, on more threads; ours goes on
// on the same stack. Bits are the same.
#include "examples/trainers/digits_classifier.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

constexpr int64_t kState = 48;
constexpr int kIterations = 12;

class EquilibriumImpl : public nn::Module {
 public:
  EquilibriumImpl()
      : from_state_(register_module("from_state", nn::Linear(nn::LinearOptions(kState, kState).bias(false)))),
        from_input_(register_module("from_input", nn::Linear(64, kState))) {
    // Small enough that f contracts and the iterations below converge.
    torch::NoGradGuard no_grad;
    from_state_->weight.mul_(0.5);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto input = from_input_->forward(x);
    auto z = torch::zeros_like(input);
    {
      torch::NoGradGuard no_grad;
      for (int i = 0; i < kIterations; ++i) z = f(z, input);
    }
    // One application with a graph: its parameters' gradients are right once the incoming gradient g
    // has become the solution of  y = g + (df/dz)^T y.
    const auto result = f(z, input);
    if (result.requires_grad()) solve_in_backward(result, z, input);
    return result;
  }

 private:
  torch::Tensor f(const torch::Tensor& z, const torch::Tensor& input) {
    return torch::tanh(from_state_->forward(z) + input);
  }

  void solve_in_backward(const torch::Tensor& result, const torch::Tensor& z, const torch::Tensor& input) {
    // A graph of its own, which does not hold `result`: a hook that owned its tensor would never be freed.
    const auto z_again = z.detach().requires_grad_();
    const auto f_again = f(z_again, input.detach());
    result.register_hook([z_again, f_again](const torch::Tensor& g) {
      auto y = g;
      for (int i = 0; i < kIterations; ++i) {
        y = g + torch::autograd::grad({f_again}, {z_again}, {y}, /*retain_graph=*/true)[0];
      }
      return y;
    });
  }

  nn::Linear from_state_, from_input_;
};
TORCH_MODULE(Equilibrium);

class Deq final : public DigitsClassifier {
 public:
  explicit Deq(const Setup& setup)
      : DigitsClassifier(setup),
        layer_(register_module("layer", Equilibrium())),
        head_(register_module("head", nn::Linear(kState, 10))) {
    use_adam(3e-3);
  }

 private:
  torch::Tensor scores_of(const torch::Tensor& images) override {
    return head_->forward(layer_->forward(images.flatten(1)));
  }

  Equilibrium layer_;
  nn::Linear head_;
};

}  // namespace

TrainerInfo deq() {
  return {.name = "deq",
          .what = "deep equilibrium layer on digits",
          .shows = "a backward inside a backward",
          .quality = "test accuracy",
          .good = 0.95,
          .default_steps = 500,
          .make = [](const Setup& setup) { return std::make_unique<Deq>(setup); }};
}

}  // namespace overdrive::trainers
