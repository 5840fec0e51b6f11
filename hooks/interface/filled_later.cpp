#include "hooks/interface/filled_later.h"

#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <typeinfo>

namespace overdrive::hooks {

namespace generated = torch::autograd::generated;

namespace {

// As rrelu's derivative decides whether it looks at the noise.
template <typename Rrelu>
bool uses_noise(const base::Node& node) {
  const auto& rrelu = static_cast<const Rrelu&>(node);
  return rrelu.training && rrelu.upper.toDouble() - rrelu.lower.toDouble() > 1e-6;
}

}  // namespace

bool fills_what_it_saved(const base::Node& node) {
  const std::type_info& type = typeid(node);
  if (type == typeid(generated::RreluWithNoiseBackward0)) {
    return uses_noise<generated::RreluWithNoiseBackward0>(node);
  }
  if (type == typeid(generated::RreluWithNoiseBackward1)) {
    return uses_noise<generated::RreluWithNoiseBackward1>(node);
  }
  if (type != typeid(torch::autograd::CopySlices)) return false;
  const base::NodePtr& inner = static_cast<const torch::autograd::CopySlices&>(node).fn;
  return inner && fills_what_it_saved(*inner);
}

void refuse_filled_later(const base::Node& node, const std::string& hooks) {
  TORCH_CHECK(
      false, node.name(), " cannot use what ", hooks,
      " packed: LibTorch saves the noise of rrelu before it is drawn, and fills it afterwards. Call rrelu in "
      "a scope without hooks, ScopedHooks(nullptr), or mark the hook schedulable().");
}

}  // namespace overdrive::hooks
