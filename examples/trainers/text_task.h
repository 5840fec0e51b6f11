// What the language models share: stretches of the book to train on, the loss of a guess at what follows, and
// bits per character on the part of the book that training never sees. Plain values, owned by a trainer; used
// by its thread. Knows no model.
#pragma once

#include "examples/data/text.h"

#include <cmath>
#include <functional>

namespace overdrive::trainers {

class TextTask {
 public:
  TextTask() : text_(data::load_text()) {}

  const data::Text& text() const { return text_; }

  // `batch` rows of `length` characters each and the one that follows, as numbers.
  torch::Tensor stretches(int64_t batch, int64_t length, at::Generator& random) const;

  // Bits per character of `loss_of` (as loss() below, of such rows) on the test part, `length` characters a
  // row.
  double test_bits(int64_t length, const std::function<torch::Tensor(const torch::Tensor&)>& loss_of) const;

  // Mean cross entropy of every character but the first of each row. `scores`: [rows, length, vocabulary],
  // one guess for each character but the last.
  static torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& rows);

 private:
  const data::Text text_;
};

inline torch::Tensor TextTask::stretches(int64_t batch, int64_t length, at::Generator& random) const {
  const auto start = torch::randint(text_.train.size(0) - length, {batch, 1}, random, torch::kInt64);
  return text_.train.take(start + torch::arange(length + 1));
}

inline double TextTask::test_bits(int64_t length,
                                  const std::function<torch::Tensor(const torch::Tensor&)>& loss_of) const {
  torch::NoGradGuard no_grad;
  const int64_t rows = text_.test.size(0) / (length + 1);
  const auto test = text_.test.narrow(0, 0, rows * (length + 1)).view({rows, length + 1});
  return loss_of(test).item<double>() / std::log(2.0);
}

inline torch::Tensor TextTask::loss(const torch::Tensor& scores, const torch::Tensor& rows) {
  const auto following = rows.narrow(1, 1, rows.size(1) - 1).reshape({-1});
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), following);
}

}  // namespace overdrive::trainers
