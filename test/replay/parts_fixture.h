// A program that is made twice and runs eagerly and with a captured part, side by side, with the comparison of
// everything that it leaves behind.
#pragma once

#include "replay/captured.h"
#include "test/replay/replay_fixture.h"

namespace overdrive::test {

using PartFunction = std::function<Tensors(const Tensors&)>;

// A program around one function.
struct PartProgram {
  std::shared_ptr<torch::nn::Module> model;
  PartFunction function;
  // Step i with the function, captured or not. What it returns is compared.
  std::function<Tensors(const PartFunction&, int)> step;
};

class PartBesideEager {
 public:
  explicit PartBesideEager(const std::function<PartProgram()>& make, CaptureOptions options = {})
      : eager_(made(make)), captured_(made(make)) {
    if (options.modules.empty() && captured_.model) options.modules = {captured_.model};
    part_ = std::make_unique<CapturedStep>(captured_.function, options, /*is_part=*/true);
    eager_generator_ = captured_generator_ = at::detail::getDefaultCPUGenerator().get_state();
  }

  // The first difference; empty when every bit is the same. A step that throws throws the same in both.
  std::string run(int steps) {
    for (int i = 0; i < steps; ++i, ++steps_) {
      Tensors expected, results;
      const std::string expected_error =
          in_turn(eager_generator_, [&] { expected = eager_.step(eager_.function, steps_); });
      const std::string error = in_turn(captured_generator_, [&] {
        results = captured_.step([this](const Tensors& inputs) { return part_->call(inputs); }, steps_);
      });
      if (error != expected_error)
        return c10::str("step ", steps_, ": \"", error, "\" in the place of \"", expected_error, "\"");
      // An error comes before the first gradient, and eager's after some of them.
      if (!error.empty() && error != "(no error)") continue;
      if (std::string text = difference(expected, results); !text.empty())
        return c10::str("step ", steps_, ": ", text);
    }
    return "";
  }

  CapturedStep& part() { return *part_; }
  PartProgram& captured() { return captured_; }

 private:
  static PartProgram made(const std::function<PartProgram()>& make) {
    torch::manual_seed(7);
    return make();
  }

  template <typename Action>
  static std::string in_turn(at::Tensor& state, Action action) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state);
    std::string error = error_of(action);
    state = generator.get_state();
    return error;
  }

  std::string difference(const Tensors& expected, const Tensors& results) {
    if (expected.size() != results.size()) return "another number of results";
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!same_bits(expected[i], results[i])) return c10::str("result ", i, " differs");
      if (!expected[i].defined()) continue;
      if (expected[i].strides() != results[i].strides()) return c10::str("result ", i, " has other strides");
      if (expected[i].requires_grad() != results[i].requires_grad() ||
          expected[i].is_leaf() != results[i].is_leaf())
        return c10::str("result ", i, " has a graph in one of the two");
    }
    if (eager_.model) {
      if (std::string text = of_model(); !text.empty()) return text;
    }
    return same_bits(eager_generator_, captured_generator_) ? "" : "the generators differ";
  }

  std::string of_model() {
    Tensors a = eager_.model->parameters(), b = captured_.model->parameters();
    for (const at::Tensor& buffer : eager_.model->buffers()) a.push_back(buffer);
    for (const at::Tensor& buffer : captured_.model->buffers()) b.push_back(buffer);
    for (size_t i = 0; i < a.size(); ++i) {
      if (!same_bits(a[i], b[i])) return c10::str("tensor ", i, " differs");
      if (!same_bits(a[i].grad(), b[i].grad())) return c10::str("the gradient of tensor ", i, " differs");
      if (a[i].grad().defined() && a[i].grad().strides() != b[i].grad().strides())
        return c10::str("the gradient of tensor ", i, " has other strides");
      if (a[i]._version() != b[i]._version())
        return c10::str("tensor ", i, " has version ", b[i]._version(), ", not ", a[i]._version());
    }
    return "";
  }

  PartProgram eager_;
  PartProgram captured_;
  std::unique_ptr<CapturedStep> part_;
  at::Tensor eager_generator_;
  at::Tensor captured_generator_;
  int steps_ = 0;
};

inline Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

// A network whose loss and update stand outside of the part.
inline PartProgram part_of_net(torch::nn::Sequential net, std::vector<int64_t> x, std::vector<int64_t> y,
                               const MakeOptimizer& make_optimizer = sgd()) {
  auto optimizer = make_optimizer(net->parameters());
  return {.model = net.ptr(),
          .function = [net](const Tensors& inputs) mutable { return Tensors{net->forward(inputs[0])}; },
          .step =
              [=](const PartFunction& part, int i) {
                const Tensors batch = batch_of(i, x, y);
                optimizer->zero_grad();
                const at::Tensor loss = torch::mse_loss(part({batch[0]})[0], batch[1]);
                loss.backward();
                optimizer->step();
                return Tensors{loss};
              }};
}

inline PartProgram small_part() {
  using namespace torch::nn;
  return part_of_net(Sequential(Linear(8, 16), Tanh(), Linear(16, 16), ReLU(), Linear(16, 4)), {5, 8}, {5, 4});
}

}  // namespace overdrive::test
