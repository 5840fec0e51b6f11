// A public-domain book as numbered characters, for the language models. Plain values, read anew by each
// call; safe from any thread.
#pragma once

#include <torch/torch.h>

#include <string>

namespace overdrive::data {

struct Text {
  std::string characters;  // character of each number
  torch::Tensor train;     // int64 [n]
  torch::Tensor test;      // int64 [m], the last tenth of the book

  int64_t vocabulary() const { return static_cast<int64_t>(characters.size()); }
  std::string decode(const torch::Tensor& numbers) const;
};

Text load_text();

}  // namespace overdrive::data
