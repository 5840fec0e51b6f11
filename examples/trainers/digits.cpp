// Digits: the plain swap. Two ordinary classifiers, a three-layer MLP and a small CNN, on 8x8
// images of hand-written digits.
//
// What to look for: nothing here mentions Overdrive. The step below is what any LibTorch program does, and
// whichever engine is the default runs its backward. `overdrive compare digits` trains each model twice and
// finds every parameter equal, bit for bit, after every step.
#include "examples/data/digits.h"
#include "examples/trainers/digits_cnn.h"

#include "examples/trainers/registry.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::Sequential mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                        nn::Linear(64, 10));
}

class Classifier final : public Trainer {
 public:
  Classifier(const Setup& setup, nn::Sequential (*build)(), int64_t batch)
      : Trainer(setup), data_(data::load_digits()), batch_(batch), model_(register_module("model", build())) {
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::Adam>(model_->parameters(), 2e-3));
  }

  double step(Meter& meter) override {
    const auto pick = torch::randint(data_.train.labels.size(0), {batch_}, generator(), torch::kInt64);
    const auto images = place(data_.train.images.index_select(0, pick));
    const auto labels = place(data_.train.labels.index_select(0, pick));

    optimizer_->zero_grad();
    // The meter is a stopwatch around the call and around loss.backward(), and nothing else.
    const auto loss = meter.forward([&] { return F::cross_entropy(model_->forward(images), labels); });
    meter.backward(loss);
    optimizer_->step();
    return loss.item<double>();
  }

  double evaluate() override {
    torch::NoGradGuard no_grad;
    const auto answers = model_->forward(place(data_.test.images)).argmax(1);
    return answers.eq(place(data_.test.labels)).to(torch::kFloat64).mean().item<double>();
  }

 private:
  const data::Digits data_;
  const int64_t batch_;
  nn::Sequential model_;
  torch::optim::Optimizer* optimizer_;
};

TrainerInfo classifier(std::string name, std::string what, double good, int64_t steps, int64_t batch,
                       nn::Sequential (*build)()) {
  return {.name = std::move(name),
          .group = "digits",
          .what = std::move(what),
          .shows = "the plain swap",
          .quality = "test accuracy",
          .more_is_better = true,
          .good = good,
          .default_steps = steps,
          .make = [=](const Setup& setup) { return std::make_unique<Classifier>(setup, build, batch); }};
}

}  // namespace

TrainerInfo digits_mlp() { return classifier("digits_mlp", "3-layer MLP on 8x8 digits", 0.95, 600, 32, mlp); }
TrainerInfo digits_cnn() {
  return classifier("digits_cnn", "small CNN on 8x8 digits", 0.97, 400, 32, make_digits_cnn);
}

}  // namespace overdrive::trainers
