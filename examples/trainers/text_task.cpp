#include "examples/trainers/text_task.h"

#include <cmath>

namespace overdrive::trainers {

torch::Tensor TextTask::stretches(int64_t batch, int64_t length, at::Generator& random) const {
  const auto start = torch::randint(text_.train.size(0) - length, {batch, 1}, random, torch::kInt64);
  return text_.train.take(start + torch::arange(length + 1));
}

double TextTask::test_bits(int64_t length,
                           const std::function<torch::Tensor(const torch::Tensor&)>& loss_of) const {
  torch::NoGradGuard no_grad;
  const int64_t rows = text_.test.size(0) / (length + 1);
  const auto test = text_.test.narrow(0, 0, rows * (length + 1)).view({rows, length + 1});
  return loss_of(test).item<double>() / std::log(2.0);
}

torch::Tensor TextTask::loss(const torch::Tensor& scores, const torch::Tensor& rows) {
  const auto following = rows.narrow(1, 1, rows.size(1) - 1).reshape({-1});
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), following);
}

void TextTask::clip_gradients(const std::vector<torch::Tensor>& parameters, double most) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms;
  for (const auto& parameter : parameters) norms.push_back(parameter.grad().norm(2.0));
  const auto total = torch::stack(norms).norm(2.0);
  const auto factor = torch::clamp(most / (total + 1e-6), std::nullopt, 1.0);
  for (const auto& parameter : parameters) parameter.grad().mul_(factor);
}

}  // namespace overdrive::trainers
