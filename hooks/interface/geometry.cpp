#include "hooks/interface/geometry.h"

#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

namespace overdrive::hooks {
namespace {
c10::impl::SizesAndStrides dims_of(at::IntArrayRef sizes, at::IntArrayRef strides) {
  c10::impl::SizesAndStrides dims;
  dims.set_sizes(sizes);
  dims.set_strides(strides);
  return dims;
}
}  // namespace

Geometry Geometry::of(const at::Tensor& tensor) {
  return {.dims = dims_of(tensor.sizes(), tensor.strides()),
          .offset = tensor.storage_offset(),
          .conj = tensor.is_conj(),
          .neg = tensor.is_neg()};
}

Geometry Geometry::row(int64_t begin, int64_t extent) {
  return {.dims = dims_of({extent}, {1}), .offset = begin};
}

int64_t Geometry::numel() const { return c10::multiply_integers(sizes()); }

int64_t Geometry::end() const {
  int64_t last = offset;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (sizes()[d] == 0) return offset;
    last += (sizes()[d] - 1) * strides()[d];
  }
  return last + 1;
}

bool Geometry::is_dense() const {
  c10::SmallVector<size_t, 5> order;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (sizes()[d] != 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides()[a] < strides()[b]; });
  int64_t expected = 1;
  for (const size_t d : order) {
    if (strides()[d] != expected) return false;
    expected *= sizes()[d];
  }
  return true;
}

int64_t Geometry::distinct() const {
  int64_t different = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (strides()[d] != 0) different *= sizes()[d];
  }
  return std::min(different, extent());
}

Geometry Geometry::each_once() const {
  Geometry once{.dims = dims, .offset = offset};
  if (distinct() == numel()) return once;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (strides()[d] == 0) once.dims.size_at(d) = 1;
  }
  // Also for overlapping windows, and for a row with repeated dimensions.
  return once.extent() <= once.numel() ? row(offset, extent()) : once;
}

namespace {
c10::intrusive_ptr<c10::TensorImpl> plain_copy(const at::Tensor& tensor, const c10::VariableVersion& counter) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (typeid(impl) != typeid(c10::TensorImpl)) {
    return impl.shallow_copy_and_detach(counter, /*allow_tensor_metadata_change=*/true);
  }
  // The same at two thirds of the cost: the call above makes a version counter and drops it, but a tensor
  // without keys of autograd gets none.
  const c10::DispatchKeySet keys = impl.key_set() - c10::inplace_or_view_ks - c10::autograd_dispatch_keyset;
  auto copy = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl.unsafe_storage()),
                                                   keys, impl.dtype());
  copy->shallow_copy_from(tensor.getIntrusivePtr());
  copy->set_version_counter(counter);
  return copy;
}

}  // namespace

at::Tensor view_over(const at::Tensor& base, const Geometry& geometry, const c10::VariableVersion& counter) {
  auto impl = plain_copy(base, counter);
  if (!same_numbers(impl->sizes(), geometry.sizes()) || !same_numbers(impl->strides(), geometry.strides()) ||
      impl->storage_offset() != geometry.offset) {
    impl->set_sizes_and_strides(geometry.sizes(), geometry.strides(), geometry.offset);
  }
  // Setting a bit takes the keys apart; most tensors have neither.
  if (impl->is_conj() != geometry.conj) impl->_set_conj(geometry.conj);
  if (impl->is_neg() != geometry.neg) impl->_set_neg(geometry.neg);
  return at::Tensor(std::move(impl));
}

at::Tensor with_strides(at::Tensor tensor, at::IntArrayRef strides) {
  if (same_numbers(tensor.strides(), strides)) return tensor;
  const c10::NoGradGuard no_grad;
  at::Tensor once = tensor;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0 && once.size(static_cast<int64_t>(d)) > 1)
      once = once.narrow(static_cast<int64_t>(d), 0, 1);
  }
  at::Tensor result = at::empty_strided(once.sizes(), strides, tensor.options());
  result.copy_(once);
  return result.as_strided(tensor.sizes(), strides);
}

}  // namespace overdrive::hooks
