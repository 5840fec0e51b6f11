#include "hooks/interface/tensor_kinds.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <c10/core/impl/COW.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <typeinfo>

namespace overdrive::hooks {

namespace generated = torch::autograd::generated;

namespace {
constexpr c10::DispatchKeySet kOddKeys =
    at::kTensorSubclassLike | c10::DispatchKeySet(c10::BackendComponent::MetaBit) |
    c10::DispatchKeySet({c10::DispatchKey::ZeroTensor, c10::DispatchKey::Quantized,
                         c10::DispatchKey::NestedTensor, c10::DispatchKey::PythonTLSSnapshot});

bool has_plain_memory(const c10::TensorImpl& impl) {
  if (!impl.has_storage() || impl.has_symbolic_sizes_strides()) return false;
  const c10::Storage& storage = impl.unsafe_storage();
  const c10::DataPtr& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return data.get() != nullptr && !c10::impl::cow::is_cow_data_ptr(data);
}

bool is_leaf_that_requires_grad(const at::TensorBase& tensor) {
  return tensor.requires_grad() && tensor.is_leaf();
}

// As rrelu's derivative decides whether it looks at the noise.
template <typename Rrelu>
bool uses_noise(const base::Node& node) {
  const auto& rrelu = static_cast<const Rrelu&>(node);
  return rrelu.training && rrelu.upper.toDouble() - rrelu.lower.toDouble() > 1e-6;
}

}  // namespace

bool is_packable(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.layout() == c10::kStrided && (impl.key_set() & kOddKeys).empty() && !impl.is_wrapped_number() &&
         has_plain_memory(impl) && impl.numel() != 0;
}

// The fields of a tensor that is no view are enough. A view may have to make its node first.
History history_of(const at::Tensor& tensor) {
  static const base::NodePtr none;
  const auto* meta =
      static_cast<const torch::autograd::AutogradMeta*>(tensor.unsafeGetTensorImpl()->autograd_meta());
  if (meta == nullptr) return {none, 0, false};
  if (!meta->is_view_) return {meta->grad_fn_, meta->output_nr_, !meta->grad_fn_ && meta->requires_grad_};
  const base::NodePtr& node = tensor.grad_fn();
  return {
      node, static_cast<uint32_t>(tensor.output_nr()),
      is_leaf_that_requires_grad(tensor) || (tensor.is_view() && is_leaf_that_requires_grad(tensor._base()))};
}

// Nothing at the save tells the owner of a row. Rows longer than the channels of any norm are data.
bool may_change_unseen(const at::Tensor& tensor, const History& history) {
  constexpr int64_t kMostChannels = 1 << 18;
  return tensor.dim() == 1 && tensor.numel() <= kMostChannels && history.node == nullptr &&
         !history.parameter && tensor.is_floating_point();
}

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
