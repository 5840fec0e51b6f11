// The 1,797 digit images as tensors, split into training and test part. Plain values, read
// anew by each call; safe from any thread.
#pragma once

#include <torch/torch.h>

namespace overdrive::data {

struct DigitSet {
  torch::Tensor images;  // float [n, 1, 8, 8], 0 to 1
  torch::Tensor labels;  // int64 [n]
};

struct Digits {
  DigitSet train;
  DigitSet test;
};

// Every fifth image is a test image. Throws c10::Error when a file is missing or damaged.
Digits load_digits();

// The share of the images whose highest score, one row an image, is that of the label.
inline double accuracy(const torch::Tensor& scores, const torch::Tensor& labels) {
  return scores.argmax(1).to(torch::kCPU).eq(labels).to(torch::kFloat64).mean().item<double>();
}

}  // namespace overdrive::data
