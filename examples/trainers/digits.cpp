// Digits: the plain swap. Two ordinary classifiers, a three-layer MLP and a small CNN, on 8x8
// images of hand-written digits.
//
// What to look for: nothing here, nor in the step (digits_classifier.h), mentions Overdrive. It is what any
// LibTorch program does, and whichever engine is the default runs its backward. `overdrive compare digits`
// trains each model twice and finds every parameter equal, bit for bit, after every step.
#include "examples/trainers/digits_classifier.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

nn::Sequential mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                        nn::Linear(64, 10));
}

class Classifier final : public DigitsClassifier {
 public:
  Classifier(const Setup& setup, nn::Sequential (*build)())
      : DigitsClassifier(setup), model_(register_module("model", build())) {
    use_adam(2e-3);
  }

 private:
  torch::Tensor scores_of(const torch::Tensor& images) override { return model_->forward(images); }

  nn::Sequential model_;
};

TrainerInfo classifier(std::string name, std::string what, double good, int64_t steps,
                       nn::Sequential (*build)()) {
  return {.name = std::move(name),
          .group = "digits",
          .what = std::move(what),
          .shows = "the plain swap",
          .quality = "test accuracy",
          .good = good,
          .default_steps = steps,
          .make = [=](const Setup& setup) { return std::make_unique<Classifier>(setup, build); }};
}

}  // namespace

TrainerInfo digits_mlp() { return classifier("digits_mlp", "3-layer MLP on 8x8 digits", 0.95, 600, mlp); }
TrainerInfo digits_cnn() {
  return classifier("digits_cnn", "small CNN on 8x8 digits", 0.97, 400, make_digits_cnn);
}

}  // namespace overdrive::trainers
