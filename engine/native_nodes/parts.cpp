// Copies in and out of parts: the gradient of a part is a whole with zeros around it, the gradient of a whole
// that was put together is its parts.
#include "engine/host/gradient_tensors.h"
#include "engine/kernels/blocks.h"
#include "engine/native_nodes/table.h"

#include <ATen/TensorUtils.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <optional>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

// A part of a whole along one dimension, in bytes of contiguous memory.
struct Span {
  int64_t outer = 1;  // rows
  size_t row = 0;     // bytes of the whole's row
  size_t unit = 0;    // bytes of one index of the dimension

  Span(const at::DimVector& whole, size_t dim, size_t item) {
    for (size_t i = 0; i < dim; ++i) outer *= whole[i];
    unit = item;
    for (size_t i = dim + 1; i < whole.size(); ++i) unit *= static_cast<size_t>(whole[i]);
    row = unit * static_cast<size_t>(whole[dim]);
  }
};

bool wrap(int64_t& dim, size_t dims) {
  if (dim < 0) dim += static_cast<int64_t>(dims);
  return dim >= 0 && dim < static_cast<int64_t>(dims);
}

// Sizes with one dimension another, or without it.
bool is_part(const at::Tensor& part, const at::DimVector& whole, size_t dim, std::optional<int64_t> length) {
  at::DimVector expected(whole);
  if (length.has_value()) {
    expected[dim] = *length;
  } else {
    expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(dim));
  }
  return part.sizes() == at::IntArrayRef(expected);
}

at::Tensor in_zeros(const at::Tensor& part, const at::DimVector& whole, size_t dim, int64_t begin,
                    int64_t length) {
  at::Tensor out = new_tensor(whole, part);
  const Span span(whole, dim, part.dtype().itemsize());
  kernels::put_into_zeros(out.unsafeGetTensorImpl()->mutable_data(), part.unsafeGetTensorImpl()->data(),
                          span.outer, span.row, static_cast<size_t>(begin) * span.unit,
                          static_cast<size_t>(length) * span.unit);
  return out;
}

template <typename N>
constexpr bool kNotesSizes = requires(N& node, at::DimVector& sizes) {
  read_sizes(node.self_sym_sizes, sizes);
  node.dim < 0;
};

struct Select {
  template <typename N>
  static constexpr bool kFits = kNotesSizes<N> && requires(N& node) { node.index.is_heap_allocated(); };
  static NativeOutcome run(SelectBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    at::DimVector whole;
    int64_t dim = node.dim;
    if (!read_sizes(node.self_sym_sizes, whole) || !wrap(dim, whole.size())) return NativeOutcome::kOddShape;
    const auto at = static_cast<size_t>(dim);
    if (node.index.is_heap_allocated() || !is_part(gradient, whole, at, std::nullopt))
      return NativeOutcome::kOddShape;
    int64_t index = node.index.as_int_unchecked();
    if (index < 0) index += whole[at];
    if (index < 0 || index >= whole[at]) return NativeOutcome::kOddShape;
    if (is_large(c10::multiply_integers(whole))) return NativeOutcome::kLarge;
    call.results[0] = in_zeros(gradient, whole, at, index, 1);
    return NativeOutcome::kRan;
  }
};

struct Slice {
  template <typename N>
  static constexpr bool kFits = kNotesSizes<N> && requires(N& node) {
    node.start->is_heap_allocated();
    node.end->is_heap_allocated();
    node.step.is_heap_allocated();
  };
  static NativeOutcome run(SliceBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    at::DimVector whole;
    int64_t dim = node.dim;
    if (!read_sizes(node.self_sym_sizes, whole) || !wrap(dim, whole.size())) return NativeOutcome::kOddShape;
    if (node.step.is_heap_allocated() || node.step.as_int_unchecked() != 1) return NativeOutcome::kOddValue;
    int64_t begin = 0;
    const auto at = static_cast<size_t>(dim);
    if (node.start.has_value()) {
      if (node.start->is_heap_allocated()) return NativeOutcome::kOddValue;
      begin = node.start->as_int_unchecked();
      if (begin < 0) begin += whole[at];
      begin = std::clamp<int64_t>(begin, 0, whole[at]);
    }
    int64_t end = whole[at];
    if (node.end.has_value()) {
      if (node.end->is_heap_allocated()) return NativeOutcome::kOddValue;
      end = node.end->as_int_unchecked();
      if (end < 0) end += whole[at];
      end = std::clamp<int64_t>(end, begin, whole[at]);
    }
    if (!is_part(gradient, whole, at, end - begin)) return NativeOutcome::kOddShape;
    if (is_large(c10::multiply_integers(whole))) return NativeOutcome::kLarge;
    call.results[0] = in_zeros(gradient, whole, at, begin, end - begin);
    return NativeOutcome::kRan;
  }
};

// Puts gradients side by side along `dim`, or, without a length of their own, one for each index.
NativeOutcome put_together(NativeCall& call, const at::DimVector& whole, size_t dim, bool has_dim) {
  const at::Tensor& first = call.gradients[0];
  int64_t length = 0;
  for (const at::Tensor& part : call.gradients) {
    if (!is_plain(part) || part.dtype() != first.dtype() || part.numel() == 0)
      return NativeOutcome::kOddGradient;
    const int64_t own = has_dim ? part.size(static_cast<int64_t>(dim)) : 1;
    if (!is_part(part, whole, dim, has_dim ? std::optional(own) : std::nullopt))
      return NativeOutcome::kOddShape;
    length += own;
  }
  if (length != whole[dim]) return NativeOutcome::kOddShape;
  if (is_large(c10::multiply_integers(whole))) return NativeOutcome::kLarge;
  at::Tensor out = new_tensor(whole, first);
  const Span span(whole, dim, first.dtype().itemsize());
  size_t offset = 0;
  for (const at::Tensor& part : call.gradients) {
    const size_t bytes = span.unit * static_cast<size_t>(has_dim ? part.size(static_cast<int64_t>(dim)) : 1);
    kernels::put_into_rows(out.unsafeGetTensorImpl()->mutable_data(), part.unsafeGetTensorImpl()->data(),
                           span.outer, span.row, offset, bytes);
    offset += bytes;
  }
  call.results[0] = std::move(out);
  return NativeOutcome::kRan;
}

struct Split {
  template <typename N>
  static constexpr bool kFits = kNotesSizes<N>;
  template <typename N>
  static NativeOutcome run(N& node, NativeCall& call) {
    at::DimVector whole;
    int64_t dim = node.dim;
    if (!call.gradients[0].defined() || call.gradients[0].dim() == 0) return NativeOutcome::kOddGradient;
    if (!read_sizes(node.self_sym_sizes, whole) || !wrap(dim, whole.size())) return NativeOutcome::kOddShape;
    for (const at::Tensor& part : call.gradients) {
      if (!part.defined() || part.dim() != static_cast<int64_t>(whole.size()))
        return NativeOutcome::kOddGradient;
    }
    return put_together(call, whole, static_cast<size_t>(dim), /*has_dim=*/true);
  }
};

struct Unbind {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.dim < 0; };
  static NativeOutcome run(UnbindBackward0& node, NativeCall& call) {
    const at::Tensor& first = call.gradients[0];
    if (!first.defined()) return NativeOutcome::kOddGradient;
    at::DimVector whole(first.sizes().begin(), first.sizes().end());
    int64_t dim = node.dim;
    if (!wrap(dim, whole.size() + 1)) return NativeOutcome::kOddShape;
    whole.insert(whole.begin() + dim, static_cast<int64_t>(call.gradients.size()));
    return put_together(call, whole, static_cast<size_t>(dim), /*has_dim=*/false);
  }
};

struct Cat {
  template <typename N>
  static constexpr bool kFits = requires(N& node, at::DimVector& sizes) {
    read_sizes(node.tensors_args_sizes_symint[0], sizes);
    node.tensors_args_scalartypes[0];
    node.dim < 0;
  };
  static NativeOutcome run(CatBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    if (call.views_are_seen) return NativeOutcome::kSeen;
    int64_t dim = node.dim;
    const auto& noted = node.tensors_args_sizes_symint;
    if (!wrap(dim, gradient.sizes().size()) || noted.size() != call.results.size())
      return NativeOutcome::kOddShape;
    int64_t length = 0;
    c10::SmallVector<at::DimVector, 8> parts(noted.size());
    for (size_t i = 0; i < noted.size(); ++i) {
      if (!read_sizes(noted[i], parts[i]) || parts[i].size() != gradient.sizes().size())
        return NativeOutcome::kOddShape;
      if (node.tensors_args_scalartypes[i] != gradient.scalar_type()) return NativeOutcome::kOddSaved;
      const int64_t own = parts[i][static_cast<size_t>(dim)];
      if (own == 0) return NativeOutcome::kOddShape;  // the host makes a tensor of its own for no elements
      at::DimVector whole(gradient.sizes().begin(), gradient.sizes().end());
      whole[static_cast<size_t>(dim)] = own;
      if (at::IntArrayRef(whole) != at::IntArrayRef(parts[i])) return NativeOutcome::kOddShape;
      length += own;
    }
    if (length != gradient.size(dim)) return NativeOutcome::kOddShape;
    int64_t offset = gradient.storage_offset();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (call.wants(i)) call.results[i] = view_of(gradient, parts[i], gradient.strides(), offset);
      offset += parts[i][static_cast<size_t>(dim)] * gradient.stride(dim);
    }
    return NativeOutcome::kRan;
  }
};

struct Stack {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    node.tensors_args_scalartypes[0];
    node.dim < 0;
  };
  static NativeOutcome run(StackBackward0& node, NativeCall& call) {
    const at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    if (call.views_are_seen) return NativeOutcome::kSeen;
    int64_t dim = node.dim;
    if (!wrap(dim, gradient.sizes().size())) return NativeOutcome::kOddShape;
    if (gradient.size(dim) != static_cast<int64_t>(call.results.size())) return NativeOutcome::kOddShape;
    for (const at::ScalarType type : node.tensors_args_scalartypes) {
      if (type != gradient.scalar_type()) return NativeOutcome::kOddSaved;
    }
    at::DimVector sizes(gradient.sizes().begin(), gradient.sizes().end());
    at::DimVector strides(gradient.strides().begin(), gradient.strides().end());
    sizes.erase(sizes.begin() + dim);
    strides.erase(strides.begin() + dim);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (!call.wants(i)) continue;
      const int64_t offset = gradient.storage_offset() + static_cast<int64_t>(i) * gradient.stride(dim);
      call.results[i] = view_of(gradient, sizes, strides, offset);
    }
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_parts(Table& table) {
  table.add<SelectBackward0, Select>("SelectBackward0");
  table.add<SliceBackward0, Slice>("SliceBackward0");
  table.add<SplitBackward0, Split>("SplitBackward0");
  table.add<SplitWithSizesBackward0, Split>("SplitWithSizesBackward0");
  table.add<UnbindBackward0, Unbind>("UnbindBackward0");
  table.add<CatBackward0, Cat>("CatBackward0");
  table.add<StackBackward0, Stack>("StackBackward0");
}

}  // namespace overdrive::engine::native_nodes
