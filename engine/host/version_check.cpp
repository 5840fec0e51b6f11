#include "engine/host/version_check.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <cstring>
#include <sstream>

namespace overdrive::engine::host {

using torch::autograd::impl::version_counter;

namespace {
// As the host's own message has it: older versions know only the node's name.
template <typename Producer>
std::string op_name(const Producer& producer) {
  if constexpr (requires { producer.forward_op_name(); }) {
    return std::string(producer.forward_op_name());
  } else {
    return producer.name();
  }
}
}  // namespace

VersionCheck::VersionCheck(const at::Tensor& tensor)
    : counter_(version_counter(tensor)), saved_(counter_.current_version()) {}

std::string producer_name(const base::Node* producer) { return producer ? op_name(*producer) : ""; }

void refuse_changed(const ChangedTensor& changed) {
  std::ostringstream text;
  text << "one of the variables needed for gradient computation has been modified by an inplace operation: ["
       << changed.looks_like.toString() << " ";
  if (changed.looks_like.is_nested()) {
    text << changed.looks_like._nested_tensor_size();
  } else {
    text << changed.sizes;
  }
  text << "]";
  if (!changed.producer.empty()) {
    text << ", which is output " << changed.output_nr << " of " << changed.producer << ",";
  }
  text << " is at version " << changed.version << "; expected version " << changed.saved_version << " instead.";
  if (torch::autograd::AnomalyMode::is_enabled()) {
    text << " Hint: the backtrace further above shows the operation that failed to compute its gradient. The "
            "variable in question was changed in there or anywhere later. Good luck!";
  } else {
    text << " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
            "torch.autograd.set_detect_anomaly(True, check_nan=False).";
  }
  TORCH_CHECK(false, text.str());
}

bool same_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  // The class holds one pointer and compares by nothing that it lets us see.
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), sizeof a) == 0;
}

}  // namespace overdrive::engine::host
