// Sums, means and losses: one gradient for many elements. A sum's is repeated by strides of zero, a mean's and
// a loss's is written out.
#include "engine/host/gradient_tensors.h"
#include "engine/host/saved_variable.h"
#include "engine/kernels/elementwise.h"
#include "engine/native_nodes/table.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

// The gradient of a sum over `dims` (all when empty), with the reduced dimensions put back as ones.
struct Kept {
  at::DimVector sizes;
  at::DimVector strides;

  explicit Kept(const at::Tensor& gradient)
      : sizes(gradient.sizes().begin(), gradient.sizes().end()),
        strides(gradient.strides().begin(), gradient.strides().end()) {}

  // False where the dimensions do not make sense.
  bool put_back(at::IntArrayRef dims, size_t total) {
    const auto n = static_cast<int64_t>(total);
    std::vector<bool> reduced(total);
    for (const int64_t dim : dims) {
      const int64_t wrapped = dim < 0 ? dim + n : dim;
      if (wrapped < 0 || wrapped >= n || reduced[static_cast<size_t>(wrapped)]) return false;
      reduced[static_cast<size_t>(wrapped)] = true;
    }
    for (size_t dim = 0; dim < total; ++dim) {
      if (!reduced[dim]) continue;
      if (dim > sizes.size()) return false;
      const auto at = static_cast<std::ptrdiff_t>(dim);
      strides.insert(strides.begin() + at, dim >= sizes.size() ? 1 : sizes[dim] * strides[dim]);
      sizes.insert(sizes.begin() + at, 1);
    }
    return sizes.size() == total;
  }
};

NativeOutcome repeat(NativeCall& call, const Kept& kept, const at::DimVector& sizes) {
  if (call.views_are_seen) return NativeOutcome::kSeen;
  const at::Tensor& gradient = call.gradients[0];
  if (!at::is_expandable_to(kept.sizes, sizes)) return NativeOutcome::kOddShape;
  const auto geometry = at::inferExpandGeometry_dimvector(kept.sizes, kept.strides, sizes);
  call.results[0] = view_of(gradient, geometry.sizes, geometry.strides, gradient.storage_offset());
  return NativeOutcome::kRan;
}

template <typename N>
constexpr bool kNotesOperand =
    requires(N& node, at::DimVector& sizes) { read_sizes(node.self_sym_sizes, sizes); };

// Puts the dimensions back that a reduction noted and dropped.
template <typename N>
bool put_back_dropped(N& node, const at::DimVector& sizes, Kept& kept) {
  if (node.keepdim || sizes.empty()) return true;
  if (!node.dim.list.has_value() || node.dim.list->empty()) return true;
  return kept.put_back(*node.dim.list, sizes.size());
}

struct Sum {
  template <typename N>
  static constexpr bool kFits = kNotesOperand<N>;
  static NativeOutcome run(SumBackward0& node, NativeCall& call) {
    if (!is_strided(call.gradients[0])) return NativeOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes)) return NativeOutcome::kOddShape;
    return repeat(call, Kept(call.gradients[0]), sizes);
  }
  static NativeOutcome run(SumBackward1& node, NativeCall& call) {
    if (!is_strided(call.gradients[0])) return NativeOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes)) return NativeOutcome::kOddShape;
    Kept kept(call.gradients[0]);
    if (!put_back_dropped(node, sizes, kept)) return NativeOutcome::kOddShape;
    return repeat(call, kept, sizes);
  }
};

// Each element of a contiguous gradient, over the number of elements it is the mean of, as often as there are
// such.
at::Tensor spread(const at::Tensor& gradient, const Kept& kept, const at::DimVector& sizes, int64_t of) {
  at::Tensor out = new_tensor(sizes, gradient);
  for_type_of(gradient, [&](auto zero) {
    using T = decltype(zero);
    T* to = mutable_data_of<T>(out);
    const T* from = data_of<T>(gradient);
    const auto divisor = static_cast<T>(of);
    // From the innermost dimension outwards: the rows that the kept dimensions choose.
    const auto write = [&](auto&& self, size_t dim, int64_t offset) -> void {
      const bool repeated = kept.sizes[dim] == 1;
      if (dim + 1 == sizes.size()) {
        if (repeated)
          kernels::loops<T>().fill(to, from[offset] / divisor, sizes[dim]);
        else
          kernels::loops<T>().divide_by(to, from + offset, divisor, sizes[dim]);
        to += sizes[dim];
        return;
      }
      for (int64_t i = 0; i < sizes[dim]; ++i)
        self(self, dim + 1, repeated ? offset : offset + i * kept.strides[dim]);
    };
    write(write, 0, 0);
  });
  return out;
}

struct Mean {
  template <typename N>
  static constexpr bool kFits =
      kNotesOperand<N> && requires(N& node) { node.self_sym_numel.is_heap_allocated(); };
  static NativeOutcome run(MeanBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient) || gradient.dim() != 0) return NativeOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes) || sizes.empty()) return NativeOutcome::kOddShape;
    const int64_t n = c10::multiply_integers(sizes);
    if (n == 0 || node.self_sym_numel.is_heap_allocated()) return NativeOutcome::kOddShape;
    if (is_large(n)) return NativeOutcome::kLarge;
    at::Tensor out = new_tensor(sizes, gradient);
    for_type_of(gradient, [&](auto zero) {
      using T = decltype(zero);
      kernels::loops<T>().fill(mutable_data_of<T>(out), *data_of<T>(gradient) / static_cast<T>(n), n);
    });
    call.results[0] = std::move(out);
    return NativeOutcome::kRan;
  }
  static NativeOutcome run(MeanBackward1& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient) || !has_usual_strides(gradient)) return NativeOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes) || sizes.empty()) return NativeOutcome::kOddShape;
    Kept kept(gradient);
    if (!put_back_dropped(node, sizes, kept) || kept.sizes.size() != sizes.size())
      return NativeOutcome::kOddShape;
    if (!at::is_expandable_to(kept.sizes, sizes) || gradient.numel() == 0) return NativeOutcome::kOddShape;
    const int64_t n = c10::multiply_integers(sizes);
    if (n == 0) return NativeOutcome::kOddShape;
    if (is_large(n)) return NativeOutcome::kLarge;
    call.results[0] = spread(gradient, kept, sizes, n / gradient.numel());
    return NativeOutcome::kRan;
  }
};

// With a reduction to one number. The derivative by the target is that by the input with the two exchanged.
struct MseLoss {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    host::read_saved(node.self_);
    host::read_saved(node.target_);
    node.reduction == at::Reduction::Mean;
  };
  static NativeOutcome run(MseLossBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient) || gradient.dim() != 0) return NativeOutcome::kOddGradient;
    if (node.reduction != at::Reduction::Mean && node.reduction != at::Reduction::Sum)
      return NativeOutcome::kOddValue;
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const at::Tensor* self = host::read_saved(node.self_);
    const at::Tensor* target = host::read_saved(node.target_);
    if (self == nullptr || target == nullptr || !is_plain(*self) || !is_plain(*target))
      return NativeOutcome::kOddSaved;
    if (!same_sizes_and_type(*self, *target) || self->dtype() != gradient.dtype())
      return NativeOutcome::kOddSaved;
    const int64_t n = self->numel();
    if (n == 0) return NativeOutcome::kOddShape;
    if (is_large(n)) return NativeOutcome::kLarge;
    bool nan = false;
    for_type_of(gradient, [&](auto zero) {
      nan = kernels::loops<decltype(zero)>().has_nan(data_of<decltype(zero)>(gradient), 1);
    });
    if (nan) return NativeOutcome::kNaN;
    const double factor = node.reduction == at::Reduction::Mean ? 2. / static_cast<double>(n) : 2.;
    if (call.wants(1)) call.results[1] = backward(*target, *self, factor, gradient);
    if (call.wants(0)) call.results[0] = backward(*self, *target, factor, gradient);
    return NativeOutcome::kRan;
  }
  static at::Tensor backward(const at::Tensor& x, const at::Tensor& y, double factor,
                             const at::Tensor& gradient) {
    at::Tensor out = new_tensor(x.sizes(), x);
    for_type_of(x, [&](auto zero) {
      using T = decltype(zero);
      kernels::loops<T>().square_error_backward(mutable_data_of<T>(out), data_of<T>(x), data_of<T>(y),
                                                static_cast<T>(factor), *data_of<T>(gradient), x.numel());
    });
    return out;
  }
};

}  // namespace

void add_reductions(Table& table) {
  table.add<SumBackward0, Sum>("SumBackward0");
  table.add<SumBackward1, Sum>("SumBackward1");
  table.add<MeanBackward0, Mean>("MeanBackward0");
  table.add<MeanBackward1, Mean>("MeanBackward1");
  table.add<MseLossBackward0, MseLoss>("MseLossBackward0");
}

}  // namespace overdrive::engine::native_nodes
