// What the language models share: stretches of the book to train on, the loss of a guess at what follows, and
// bits per character on the part of the book that training never sees. Plain values, owned by a trainer; used
// by its thread. Knows no model.
#pragma once

#include "examples/data/text.h"

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

  // torch::nn::utils::clip_grad_norm_() with its bits, but for the norm that it reads and returns: a captured
  // step cannot read a number.
  static void clip_gradients(const std::vector<torch::Tensor>& parameters, double most);

  // Mean cross entropy of every character but the first of each row. `scores`: [rows, length, vocabulary],
  // one guess for each character but the last.
  static torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& rows);

 private:
  const data::Text text_;
};

}  // namespace overdrive::trainers
