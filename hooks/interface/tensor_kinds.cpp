#include "hooks/interface/tensor_kinds.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <c10/core/impl/COW.h>

namespace overdrive::hooks {
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

}  // namespace

bool is_packable(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.layout() == c10::kStrided && (impl.key_set() & kOddKeys).empty() && !impl.is_wrapped_number() &&
         has_plain_memory(impl) && impl.numel() != 0;
}

// Of tensors that are no views the fields say it all; a view may have to make itself a node first.
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

// Whose they are nobody tells at the save. Rows that are longer than any norm has channels are data.
bool may_change_unseen(const at::Tensor& tensor, const History& history) {
  constexpr int64_t kMostChannels = 1 << 18;
  return tensor.dim() == 1 && tensor.numel() <= kMostChannels && history.node == nullptr &&
         !history.parameter && tensor.is_floating_point();
}

}  // namespace overdrive::hooks
