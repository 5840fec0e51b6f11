#include "inspect/nan/tensor_range.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace overdrive::inspect {
namespace {

ValueRange range_of_stretch(const void* values, c10::ScalarType type, size_t count) {
  const auto only_finite = [&](uint16_t exponent) {
    ValueRange range;
    range.finite = all_finite(static_cast<const uint16_t*>(values), count, exponent);
    return range;
  };
  switch (type) {
    case c10::kFloat:
      return range_of(static_cast<const float*>(values), count);
    case c10::kDouble:
      return range_of(static_cast<const double*>(values), count);
    case c10::kComplexFloat:
      return range_of(static_cast<const float*>(values), 2 * count);
    case c10::kComplexDouble:
      return range_of(static_cast<const double*>(values), 2 * count);
    case c10::kHalf:
      return only_finite(0x7C00);
    case c10::kBFloat16:
      return only_finite(0x7F80);
    default:
      return {};
  }
}

// Every element once: dimensions that repeat an element are left out, and the others are walked from the
// outermost inwards, with the stretches that lie together as one.
ValueRange range_of_strided(const at::Tensor& tensor) {
  struct Dimension {
    int64_t size, stride;
  };
  std::vector<Dimension> dimensions;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != 0) dimensions.push_back({tensor.size(i), tensor.stride(i)});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  int64_t together = 1;
  while (!dimensions.empty() && dimensions.back().stride == together) {
    together *= dimensions.back().size;
    dimensions.pop_back();
  }
  ValueRange range;
  std::vector<int64_t> at(dimensions.size(), 0);
  const auto* values = static_cast<const char*>(tensor.const_data_ptr());
  for (;;) {
    range.add(range_of_stretch(values, tensor.scalar_type(), static_cast<size_t>(together)));
    size_t i = dimensions.size();
    for (; i > 0; --i) {
      const auto [size, stride] = dimensions[i - 1];
      const auto bytes = stride * static_cast<int64_t>(tensor.element_size());
      values += bytes;
      if (++at[i - 1] < size) break;
      values -= size * bytes;
      at[i - 1] = 0;
    }
    if (i == 0) return range;
  }
}

ValueRange range_on_device(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  ValueRange range;
  range.finite = at::isfinite(tensor).all().item<bool>();
  if (!range.finite || tensor.is_complex()) return range;
  range.least = tensor.min().item<double>();
  range.most = tensor.max().item<double>();
  return range;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() &&
         !tensor.key_set().has(c10::DispatchKey::FuncTorchGradWrapper) &&
         !tensor.key_set().has(c10::DispatchKey::FuncTorchBatched) &&
         !tensor.key_set().has(c10::DispatchKey::Python) &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && tensor.has_storage();
}

}  // namespace

ValueRange range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_plain(tensor) || tensor.numel() == 0) return {};
  if (!tensor.is_floating_point() && !tensor.is_complex()) return {};
  if (tensor.is_meta()) return {};
  if (!tensor.is_cpu()) return range_on_device(tensor);
  if (tensor.is_contiguous()) {
    return range_of_stretch(tensor.const_data_ptr(), tensor.scalar_type(), static_cast<size_t>(tensor.numel()));
  }
  return range_of_strided(tensor);
}

}  // namespace overdrive::inspect
