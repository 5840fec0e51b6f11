// The tensors that most gradients are, and ways to make such without the dispatcher. LibTorch decides by owners
// and versions; these functions leave both as its operators do. No state, any thread.
//
// Note [Views of gradients]: in stock a view of a gradient keeps the tensor that it is a view of, and so the
// storage has two owners. The sum of two gradients asks how many owners a storage has, and is taken in place,
// with a raised version, or into new memory. A view that view_of() makes therefore keeps its base, too.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

namespace overdrive::engine {

// An uninitialised ordinary tensor of float, made without the dispatcher in every mode of the thread.
at::Tensor make_ordinary_tensor(at::IntArrayRef sizes);

// The dispatch keys of an ordinary tensor, dense and on the CPU.
uint64_t ordinary_keys();

// False for subclasses, functorch wrappers, and sparse, nested, mkldnn, zero, conjugated and negated tensors.
inline bool is_ordinary(const c10::TensorImpl& tensor) {
  return tensor.key_set().raw_repr() == ordinary_keys();
}

// Dense, on the CPU, of float or double, contiguous; no number that only stands for a scalar.
inline bool is_plain(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !is_ordinary(impl) || impl.has_symbolic_sizes_strides()) return false;
  const at::ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  return (type == at::kFloat || type == at::kDouble) && impl.is_contiguous() && !impl.is_wrapped_number();
}

// Dense, on the CPU, of float or double, with any strides.
inline bool is_strided(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !is_ordinary(impl) || impl.has_symbolic_sizes_strides()) return false;
  const at::ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  return (type == at::kFloat || type == at::kDouble) && !impl.is_wrapped_number();
}

// A contiguous tensor may have any stride where a size is one; what the host allocates has these.
inline bool has_usual_strides(const at::Tensor& tensor) {
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != expected) return false;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

inline bool same_sizes_and_type(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype();
}

// Work above this size is cut into parts for the host's threads, where it has several.
inline bool is_large(int64_t elements) {
  return elements > at::internal::GRAIN_SIZE && at::get_num_threads() > 1;
}

// Nobody else has the tensor. A hook may have a weak pointer to it, and would see that it lives on as a result.
inline bool has_one_owner(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.weak_use_count() == 1;
}

// Whether Python has a wrapper of the tensor; true as well where this version of LibTorch is asked in another
// way.
inline bool has_python_object(const at::Tensor& tensor) {
  return [](const auto& slot) {
    if constexpr (requires { slot.load_pyobj(); }) {
      return slot.load_pyobj() != nullptr;
    } else {
      return true;
    }
  }(*tensor.unsafeGetTensorImpl()->pyobj_slot());
}

// A plain gradient with usual strides that only the caller has, whose memory is its alone: a result may be
// written over it, and then looks like a new tensor.
bool may_be_written(const at::Tensor& gradient);

inline at::Tensor new_tensor(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::Tensor(at::detail::empty_cpu(sizes, c10::typeMetaToScalarType(like.dtype())));
}

// Views that view_of() made become views as LibTorch's operators make them without grad mode: code that did not
// make them may ask what they are views of.
void show_views(std::vector<at::Tensor>& gradients);

// See Note [Views of gradients].
at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides,
                   int64_t storage_offset);

// The sizes that a node noted, when none is symbolic.
bool read_sizes(c10::ArrayRef<c10::SymInt> noted, at::DimVector& sizes);

template <typename T>
const T* data_of(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.unsafeGetTensorImpl()->data());
}
template <typename T>
T* mutable_data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.unsafeGetTensorImpl()->mutable_data());
}

// Calls `work` with a value of the tensor's element type.
template <typename Work>
void for_type_of(const at::Tensor& tensor, Work&& work) {
  if (c10::typeMetaToScalarType(tensor.dtype()) == at::kFloat) {
    work(float{});
  } else {
    work(double{});
  }
}

}  // namespace overdrive::engine
