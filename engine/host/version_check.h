// Notices that a tensor was changed in place after it was saved. Kept with the saved tensor; holds its version
// counter and not the tensor. Any thread may ask. Leaves to the callers which changes are errors.
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::engine::host {

class VersionCheck {
 public:
  VersionCheck() = default;
  explicit VersionCheck(const at::Tensor& tensor);

  const c10::VariableVersion& counter() const { return counter_; }
  uint32_t saved_version() const { return saved_; }
  bool is_current() const { return counter_.current_version() == saved_; }

 private:
  c10::VariableVersion counter_;
  uint32_t saved_ = 0;
};

// A tensor that was changed after it was saved.
struct ChangedTensor {
  at::Tensor looks_like;  // of its type; of any size unless nested
  at::IntArrayRef sizes;
  uint32_t version;
  uint32_t saved_version;
  std::string producer;  // of producer_name(); empty: none
  uint32_t output_nr;    // of the producer
};
// The node that made a tensor, as the error has it; null: none.
std::string producer_name(const base::Node* producer);
// Throws stock's error.
[[noreturn]] void refuse_changed(const ChangedTensor& changed);

// Whether two tensors share one counter, which views and detached tensors do and `data()` does not.
bool same_counter(const c10::VariableVersion& a, const c10::VariableVersion& b);

}  // namespace overdrive::engine::host
