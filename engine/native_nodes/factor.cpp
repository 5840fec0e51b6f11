#include "engine/native_nodes/factor.h"

namespace overdrive::engine::native_nodes {

bool Factor::read(const at::Scalar& number) {
  if (number.isSymbolic() || number.isComplex()) return false;
  is_whole = !number.isFloatingPoint();
  if (is_whole) {
    whole = number.toLong();
  } else {
    fraction = number.toDouble();
  }
  return true;
}

bool Factor::read(const torch::autograd::SavedVariable& saved, const at::Tensor& gradient) {
  const at::Tensor* found = host::read_saved(saved);
  if (found == nullptr) return false;
  if (is_plain(*found) && same_sizes_and_type(*found, gradient)) {
    tensor = found;
    return true;
  }
  const c10::TensorImpl& impl = *found->unsafeGetTensorImpl();
  if (!is_ordinary(impl) || impl.dim() != 0) return false;
  // By LibTorch's type promotion a wrapped number never changes the result's type, and a tensor without
  // dimensions does not where the other tensor has some.
  if (!impl.is_wrapped_number() && gradient.dim() == 0) return false;
  switch (c10::typeMetaToScalarType(impl.dtype())) {
    case at::kDouble:
      fraction = *data_of<double>(*found);
      return true;
    case at::kFloat:
      fraction = static_cast<double>(*data_of<float>(*found));
      return true;
    case at::kLong:
      is_whole = true;
      whole = *data_of<int64_t>(*found);
      return true;
    default:
      return false;
  }
}

}  // namespace overdrive::engine::native_nodes
