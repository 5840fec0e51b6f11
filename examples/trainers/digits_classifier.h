// What the classifiers of 8x8 digits share: the step that any LibTorch program does, the share of test digits
// that they get right, and a small CNN. Owned as every trainer. Knows no model.
#pragma once

#include "examples/data/digits.h"
#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

class DigitsClassifier : public Trainer {
 public:
  explicit DigitsClassifier(const Setup& setup) : Trainer(setup), data_(data::load_digits()) {}

  double step(Meter& meter) override {
    const auto pick = torch::randint(data_.train.labels.size(0), {kBatch}, generator(), torch::kInt64);
    const auto images = place(data_.train.images.index_select(0, pick));
    const auto labels = place(data_.train.labels.index_select(0, pick));
    return learn(learning_, {images, labels}, meter).item<double>();
  }

  double evaluate() override {
    torch::NoGradGuard no_grad;
    return data::accuracy(scores_of(place(data_.test.images)), data_.test.labels);
  }

 protected:
  // [n, 1, 8, 8] to [n, 10].
  virtual torch::Tensor scores_of(const torch::Tensor& images) = 0;
  // To be called when all parameters are registered.
  void use_adam(double rate) {
    auto& optimizer = add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), rate));
    learning_ = add_learning(optimizer, [this, &optimizer](const auto& batch, Meter& meter) {
      return minimise(meter, optimizer,
                      [&] { return torch::nn::functional::cross_entropy(scores_of(batch[0]), batch[1]); });
    });
  }
  const data::Digits& digits() const { return data_; }

 private:
  static constexpr int64_t kBatch = 32;

  const data::Digits data_;
  size_t learning_ = 0;
};

// `digits_cnn` trains it in one process, `ddp` on several ranks.
inline torch::nn::Sequential make_digits_cnn() {
  namespace nn = torch::nn;
  // {1,8,8} -> {16,8,8} -> {32,8,8} -> {32,4,4} -> {64} -> {10}
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(32 * 4 * 4, 64), nn::ReLU(), nn::Linear(64, 10));
}

}  // namespace overdrive::trainers
