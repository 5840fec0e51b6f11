// The CNN for 8x8 digits: `digits_cnn` trains it in one process, `ddp` on several ranks.
#pragma once

#include <torch/torch.h>

namespace overdrive::trainers {

inline torch::nn::Sequential make_digits_cnn() {
  namespace nn = torch::nn;
  // {1,8,8} -> {16,8,8} -> {32,8,8} -> {32,4,4} -> {64} -> {10}
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(32 * 4 * 4, 64), nn::ReLU(), nn::Linear(64, 10));
}

}  // namespace overdrive::trainers
