#include "checkpoint/early/shared_outputs.h"

#include "checkpoint/region/region.h"

#include <ATen/MemoryOverlap.h>

namespace overdrive::checkpoint {

namespace {

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_inference();
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().is_alias_of(b.storage()) && at::get_overlap_status(a, b) != at::MemOverlapStatus::No;
}

// The function ran without a graph on inputs without history, so this came with what it captures.
bool is_captured(const at::Tensor& output) {
  return output.requires_grad() || (output.is_view() && output._base().requires_grad());
}

}  // namespace

SharedOutputs::SharedOutputs(const std::vector<at::Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!has_memory(outputs[i])) continue;
    bool shared = is_captured(outputs[i]);
    for (size_t k = 0; k < i && !shared; ++k)
      shared = has_memory(outputs[k]) && share_memory(outputs[i], outputs[k]);
    if (shared) add(i, outputs[i]);
  }
}

void SharedOutputs::add(size_t index, const at::Tensor& output) {
  const c10::VariableVersion& version = torch::autograd::impl::version_counter(output);
  outputs_.push_back({index, version, version.current_version()});
}

void SharedOutputs::check(const std::string& region) const {
  for (const Output& output : outputs_) {
    TORCH_CHECK(
        output.version.current_version() == output.noted, "Output ", output.index, " of ", region,
        " shares its memory with another output or with a tensor that the function captures, and was changed "
        "in place. The form kEarly cannot see that in the other one's gradient: use ",
        kOtherForm, ", or clone the output.");
  }
}

}  // namespace overdrive::checkpoint
