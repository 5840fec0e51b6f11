#include "engine/host/gradient_tensors.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

namespace overdrive::engine {
namespace {

// Keeps the tensor that another is a view of: the first one, as a view of a view does in stock.
struct ViewMeta final : torch::autograd::AutogradMeta {
  explicit ViewMeta(const at::Tensor& of) : base(of) {}
  const at::Tensor base;
};

const at::Tensor& first_base(const at::Tensor& of) {
  c10::AutogradMetaInterface* const meta = of.unsafeGetTensorImpl()->autograd_meta();
  if (meta == nullptr) return of;
  if (const auto* ours = dynamic_cast<const ViewMeta*>(meta)) return ours->base;
  const auto* view = torch::autograd::impl::get_view_autograd_meta(of);
  return view != nullptr && view->has_bw_view() ? view->get_backward_view().base_ : of;
}

// How memory is freed that comes from the host's allocator. Other memory may be the program's own.
c10::DeleterFnPtr usual_deleter() {
  static const c10::DeleterFnPtr deleter = make_ordinary_tensor({1}).storage().data_ptr().get_deleter();
  return deleter;
}

}  // namespace

bool may_be_written(const at::Tensor& gradient) {
  const c10::TensorImpl& impl = *gradient.unsafeGetTensorImpl();
  if (!has_one_owner(gradient)) return false;
  if (impl.autograd_meta() != nullptr || impl.storage_offset() != 0) return false;
  const c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  if (impl.unsafe_storage().use_count() != 1 || storage.sym_nbytes().is_heap_allocated()) return false;
  if (storage.nbytes() != static_cast<size_t>(impl.numel()) * impl.itemsize()) return false;
  if (storage.data_ptr().get_deleter() != usual_deleter()) return false;
  const c10::VariableVersion& version = impl.version_counter();
  return version.enabled() && version.unique() && version.current_version() == 0 && has_usual_strides(gradient);
}

at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides,
                   int64_t storage_offset) {
  c10::TensorImpl& of = *base.unsafeGetTensorImpl();
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(of.unsafe_storage()),
                                                   of.key_set(), of.dtype());
  view->set_sizes_and_strides(sizes, strides, storage_offset);
  view->set_version_counter(of.version_counter());
  view->set_autograd_meta(std::make_unique<ViewMeta>(first_base(base)));
  return at::Tensor(std::move(view));
}

void show_views(std::vector<at::Tensor>& gradients) {
  using namespace torch::autograd;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    c10::TensorImpl& impl = *gradient.unsafeGetTensorImpl();
    if (impl.autograd_meta() == nullptr) continue;
    const auto* const ours = dynamic_cast<const ViewMeta*>(impl.autograd_meta());
    if (ours == nullptr) continue;
    const at::Tensor base = ours->base;
    impl.set_autograd_meta(nullptr);
    make_variable_differentiable_view(gradient, ViewInfo(base, nullptr, nullptr), std::nullopt,
                                      /*shared_view_info=*/true, CreationMeta::NO_GRAD_MODE);
  }
}

bool read_sizes(c10::ArrayRef<c10::SymInt> noted, at::DimVector& sizes) {
  sizes.resize(noted.size());
  for (size_t i = 0; i < noted.size(); ++i) {
    if (noted[i].is_heap_allocated()) return false;
    sizes[i] = noted[i].as_int_unchecked();
  }
  return true;
}

at::Tensor make_ordinary_tensor(at::IntArrayRef sizes) {
  const c10::InferenceMode off(false);  // inference tensors lack the autograd keys
  return at::Tensor(at::detail::empty_cpu(sizes, at::kFloat));
}

uint64_t ordinary_keys() {
  static const uint64_t keys = make_ordinary_tensor({0}).key_set().raw_repr();
  return keys;
}

}  // namespace overdrive::engine
