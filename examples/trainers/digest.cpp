#include "examples/trainers/digest.h"

#include <cstdio>

namespace overdrive::trainers {

namespace {

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const torch::Tensor& tensor) {
    const auto values = tensor.detach().to(torch::kCPU).contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
    for (size_t i = 0; i < values.nbytes(); ++i) state_ = (state_ ^ bytes[i]) * 0x100000001b3;
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(state_));
    return digits;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

Digest digest_of(const Trainer& trainer) {
  Hash parameters, gradients;
  for (const auto& parameter : trainer.parameters()) {
    parameters.add(parameter);
    gradients.add(parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter));
  }
  return {parameters.text(), gradients.text()};
}

}  // namespace overdrive::trainers
