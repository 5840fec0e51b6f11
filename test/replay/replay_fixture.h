// What the tests of captured steps share: a model with its optimizer, trained eagerly and captured side by side
// from the same start, and the comparison of everything that lives on, bit by bit.
#pragma once

#include "replay/replay.h"
#include "test/replay/saved_step.h"
#include "test/support/error_of.h"
#include "test/support/pch.h"

#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace overdrive::test {

using Tensors = std::vector<at::Tensor>;

// Tests count replays, so that none is compared, and none is given up for its time, unless a test or its
// environment asks for it.
inline const int no_comparisons = setenv("OVERDRIVE_CAPTURE_CHECK", "0", /*overwrite=*/0);
inline const int no_weighing = setenv("OVERDRIVE_CAPTURE_ALWAYS", "1", /*overwrite=*/0);

// How often a recording was replayed. Where the suite runs with each replay compared (test/configs/), a call
// that was replayed counts as checked alone, as the call after two that are recorded does everywhere.
inline uint64_t replays(const CaptureStats& stats) {
  static const bool are_all_compared = std::string_view(std::getenv("OVERDRIVE_CAPTURE_CHECK")) == "1";
  const uint64_t of_new_ones = std::min(stats.checked, stats.recorded / 2);
  return stats.replayed + (are_all_compared ? stats.checked - of_new_ones : 0);
}

// One training: what is trained, how a step goes, what the inputs of step i are.
struct Training {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  // More tensors that the step changes.
  Tensors state = {};
  std::function<at::Tensor(const Tensors&)> step = {};
  std::function<Tensors(int)> inputs = {};
  // Whether the program between the calls steps the optimizer, and not the step.
  bool updates_between = false;

  at::Tensor call(int i) const { return step(inputs(i)); }

  Tensors everything() const {
    Tensors all = state;
    if (model) {
      for (const at::Tensor& tensor : model->parameters()) all.push_back(tensor);
      for (const at::Tensor& tensor : model->buffers()) all.push_back(tensor);
    }
    return all;
  }
};

// Makes the same training twice; one runs eagerly, the other is captured. `between` is called on both between
// the steps.
class SideBySide {
 public:
  using Make = std::function<Training()>;
  using Between = std::function<void(Training&, int)>;

  explicit SideBySide(const Make& make, CaptureOptions options = {})
      : eager_(made(make)), captured_(made(make)) {
    if (!options.optimizer && !captured_.updates_between) options.optimizer = captured_.optimizer.get();
    if (options.modules.empty() && captured_.model) options.modules = {captured_.model};
    step_ = std::make_unique<CapturedStep>(
        [this](const Tensors& inputs) { return Tensors{captured_.step(inputs)}; }, options);
    eager_generator_ = captured_generator_ = at::detail::getDefaultCPUGenerator().get_state();
  }

  // Says where the first difference is; empty when every bit is the same. A step that throws has to throw the
  // same in both, and to leave the same behind.
  std::string run(int steps, const Between& between = {}) {
    for (int i = 0; i < steps; ++i, ++steps_) {
      at::Tensor expected, result;
      std::string expected_error, error;
      bool wrongly_foretold = false;
      std::optional<Twin> twin;
      with_generator(eager_generator_, [&] {
        if (between) between(eager_, i);
        expected_error = error_of([&] { expected = eager_.call(steps_).detach(); });
      });
      with_generator(captured_generator_, [&] {
        if (between) between(captured_, i);
        const Tensors inputs = captured_.inputs(steps_);
        const bool foretold = step_->would_replay(inputs);
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        const at::Tensor numbers = generator.get_state();
        if (foretold) twin.emplace(*step_, captured_.inputs(steps_));
        generator.set_state(numbers);
        const CaptureStats before = step_->stats();
        error = error_of([&] { result = step_->call(inputs).at(0); });
        const CaptureStats after = step_->stats();
        if (after.undone == before.undone && after.checked == before.checked)
          wrongly_foretold = foretold != (after.replayed > before.replayed);
      });
      if (error != expected_error)
        return c10::str("step ", steps_, ": \"", error, "\" in the place of \"", expected_error, "\"");
      if (wrongly_foretold) return c10::str("step ", steps_, ": would_replay() told otherwise");
      if (!same_bits(expected, result)) return c10::str("step ", steps_, ": the result differs");
      if (std::string text = difference(); !text.empty()) return c10::str("step ", steps_, ": ", text);
      if (twin && error.empty()) {
        if (std::string text = twin->difference(result, captured_.model.get()); !text.empty())
          return c10::str("step ", steps_, ": ", text);
      }
    }
    return "";
  }

  // Eager and captured calls that a test makes by itself, each with the generator of its side.
  template <typename Action>
  void eager_alone(Action action) {
    with_generator(eager_generator_, action);
  }
  template <typename Action>
  void captured_alone(Action action) {
    with_generator(captured_generator_, action);
  }

  // Of all that lives on; empty when every bit is the same.
  std::string difference() {
    const Tensors a = eager_.everything(), b = captured_.everything();
    for (size_t i = 0; i < a.size(); ++i) {
      if (!same_bits(a[i], b[i])) return c10::str("tensor ", i, " differs");
      if (!same_bits(a[i].grad(), b[i].grad())) return c10::str("the gradient of tensor ", i, " differs");
      if (a[i]._version() != b[i]._version()) {
        return c10::str("tensor ", i, " has version ", b[i]._version(), ", not ", a[i]._version());
      }
    }
    return same_bits(eager_generator_, captured_generator_) ? "" : "the generators differ";
  }

  CapturedStep& step() { return *step_; }
  Training& eager() { return eager_; }
  Training& captured() { return captured_; }

 private:
  static Training made(const Make& make) {
    torch::manual_seed(7);
    return make();
  }

  // The two trainings draw from one generator in turn, each as if it were alone.
  template <typename Action>
  void with_generator(at::Tensor& state, Action action) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state);
    action();
    state = generator.get_state();
  }

  Training eager_;
  Training captured_;
  std::unique_ptr<CapturedStep> step_;
  at::Tensor eager_generator_;
  at::Tensor captured_generator_;
  int steps_ = 0;
};

// A batch that is another one at every step.
inline Tensors batch_of(int i, at::IntArrayRef x, at::IntArrayRef y) {
  const auto wave = [&](at::IntArrayRef sizes, double offset) {
    return torch::sin(torch::arange(c10::multiply_integers(sizes), torch::kFloat) * (0.7 + 0.01 * i) + offset)
        .reshape(sizes);
  };
  return {wave(x, 0.1 * i), wave(y, 1 + 0.2 * i)};
}

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(Tensors)>;

inline MakeOptimizer sgd(double rate = 0.1) {
  return [=](Tensors parameters) {
    return std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(rate));
  };
}

inline MakeOptimizer adam() {
  return [](Tensors parameters) {
    return std::make_shared<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  };
}

// A network of layers, trained on the square of the distance to a target.
inline Training train_sequential(torch::nn::Sequential net, const MakeOptimizer& optimizer,
                                 std::vector<int64_t> x, std::vector<int64_t> y, bool set_to_none = true) {
  Training training{.model = net.ptr(), .optimizer = optimizer(net->parameters())};
  auto* raw = training.optimizer.get();
  training.step = [net, raw, set_to_none](const Tensors& inputs) mutable {
    raw->zero_grad(set_to_none);
    at::Tensor loss = torch::mse_loss(net->forward(inputs[0]), inputs[1]);
    loss.backward();
    raw->step();
    return loss;
  };
  training.inputs = [=](int i) { return batch_of(i, x, y); };
  return training;
}

inline Training small_mlp(const MakeOptimizer& optimizer = sgd(), bool set_to_none = true) {
  using namespace torch::nn;
  return train_sequential(Sequential(Linear(8, 16), Tanh(), Linear(16, 16), ReLU(), Linear(16, 4)), optimizer,
                          {5, 8}, {5, 4}, set_to_none);
}

}  // namespace overdrive::test
