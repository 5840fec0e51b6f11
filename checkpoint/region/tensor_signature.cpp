#include "checkpoint/region/tensor_signature.h"

#include <algorithm>
#include <cstring>

namespace overdrive::checkpoint {

namespace {

// FNV-1a, eight bytes a step.
uint64_t checksum_of(const at::Tensor& tensor) {
  const at::AutoGradMode no_grad(false);
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  const auto* begin = static_cast<const unsigned char*>(bytes.const_data_ptr());
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes.nbytes(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, begin + i, std::min(sizeof word, bytes.nbytes() - i));
    sum = (sum ^ word) * 0x100000001b3;
  }
  return sum;
}

bool has_bytes(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta() && !tensor.is_nested();
}

}  // namespace

TensorSignature::TensorSignature(const at::Tensor& tensor, bool checksum) : defined_(tensor.defined()) {
  if (!defined_) return;
  if (!tensor.is_nested()) sizes_.assign(tensor.sizes().begin(), tensor.sizes().end());
  dtype_ = tensor.scalar_type();
  device_ = tensor.device();
  if (checksum && has_bytes(tensor)) checksum_ = checksum_of(tensor);
}

std::string TensorSignature::text() const {
  if (!defined_) return "an undefined tensor";
  std::string text = c10::str(dtype_, at::IntArrayRef(sizes_), " on ", device_);
  if (checksum_) text += c10::str(", checksum ", *checksum_);
  return text;
}

std::vector<TensorSignature> signatures_of(const std::vector<at::Tensor>& tensors, bool checksum) {
  std::vector<TensorSignature> signatures;
  signatures.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) signatures.emplace_back(tensor, checksum);
  return signatures;
}

}  // namespace overdrive::checkpoint
