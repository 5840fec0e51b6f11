// Nodes whose gradient is a view of the incoming one, or that one summed over what the forward repeated.
#include "engine/host/gradient_tensors.h"
#include "engine/native_nodes/table.h"
#include "engine/node/grad_sum.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

// Sizes and strides of a view that is being made.
struct Geometry {
  at::DimVector sizes;
  at::DimVector strides;

  explicit Geometry(const at::Tensor& of)
      : sizes(of.sizes().begin(), of.sizes().end()), strides(of.strides().begin(), of.strides().end()) {}

  void unsqueeze(size_t dim) {
    const int64_t stride = dim >= sizes.size() ? 1 : sizes[dim] * strides[dim];
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
    strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(dim), stride);
  }
};

NativeOutcome give_view(NativeCall& call, const Geometry& geometry) {
  const at::Tensor& gradient = call.gradients[0];
  call.results[0] = view_of(gradient, geometry.sizes, geometry.strides, gradient.storage_offset());
  return NativeOutcome::kRan;
}

// Why no view of the gradient can be made here, or kRan.
NativeOutcome look_at(const NativeCall& call) {
  if (!is_strided(call.gradients[0])) return NativeOutcome::kOddGradient;
  return call.views_are_seen ? NativeOutcome::kSeen : NativeOutcome::kRan;
}

struct Transpose {
  template <typename N>
  static constexpr bool kFits = true;
  static NativeOutcome swap(NativeCall& call, int64_t dim0, int64_t dim1) {
    const NativeOutcome odd = look_at(call);
    if (odd != NativeOutcome::kRan) return odd;
    Geometry geometry(call.gradients[0]);
    const auto dims = static_cast<int64_t>(geometry.sizes.size());
    if (dim0 < 0) dim0 += dims;
    if (dim1 < 0) dim1 += dims;
    if (dim0 < 0 || dim0 >= dims || dim1 < 0 || dim1 >= dims) return NativeOutcome::kOddShape;
    std::swap(geometry.sizes[static_cast<size_t>(dim0)], geometry.sizes[static_cast<size_t>(dim1)]);
    std::swap(geometry.strides[static_cast<size_t>(dim0)], geometry.strides[static_cast<size_t>(dim1)]);
    return give_view(call, geometry);
  }
  static NativeOutcome run(TBackward0&, NativeCall& call) {
    return swap(call, 0, call.gradients[0].dim() < 2 ? 0 : 1);
  }
  static NativeOutcome run(TransposeBackward0& node, NativeCall& call) {
    return swap(call, node.dim0, node.dim1);
  }
};

struct Permute {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.dims[0]; };
  static NativeOutcome run(PermuteBackward0& node, NativeCall& call) {
    const NativeOutcome odd = look_at(call);
    if (odd != NativeOutcome::kRan) return odd;
    const at::Tensor& gradient = call.gradients[0];
    const auto dims = gradient.dim();
    if (static_cast<int64_t>(node.dims.size()) != dims) return NativeOutcome::kOddShape;
    Geometry geometry(gradient);
    for (int64_t i = 0; i < dims; ++i) {
      const int64_t dim = node.dims[static_cast<size_t>(i)];
      const auto to = static_cast<size_t>(dim < 0 ? dim + dims : dim);
      geometry.sizes[to] = gradient.size(i);
      geometry.strides[to] = gradient.stride(i);
    }
    return give_view(call, geometry);
  }
};

// The gradient's memory in the order in which it lies, seen with the operand's sizes.
struct Reshape {
  template <typename N>
  static constexpr bool kFits =
      requires(N& node, at::DimVector& sizes) { read_sizes(node.self_sym_sizes, sizes); };
  template <typename N>
  static NativeOutcome run(N& node, NativeCall& call) {
    const NativeOutcome odd = look_at(call);
    if (odd != NativeOutcome::kRan) return odd;
    const at::Tensor& gradient = call.gradients[0];
    Geometry geometry(gradient);
    if (!read_sizes(node.self_sym_sizes, geometry.sizes)) return NativeOutcome::kOddShape;
    if (c10::multiply_integers(geometry.sizes) != gradient.numel()) return NativeOutcome::kOddShape;
    auto strides = at::detail::computeStride(gradient.sizes(), gradient.strides(), geometry.sizes);
    if (!strides.has_value()) return NativeOutcome::kOddGradient;  // a copy
    geometry.strides = std::move(*strides);
    return give_view(call, geometry);
  }
};

// Puts back the dimensions of size one that a squeeze dropped. Where it dropped none the gradient goes on as it
// is.
struct Squeeze {
  template <typename N>
  static constexpr bool kFits =
      requires(N& node, at::DimVector& sizes) { read_sizes(node.self_sym_sizes, sizes); };
  static NativeOutcome run(SqueezeBackward0& node, NativeCall& call) {
    return put_back(call, node.self_sym_sizes, [](size_t) { return true; });
  }
  static NativeOutcome run(SqueezeBackward1& node, NativeCall& call) {
    const auto dims = static_cast<int64_t>(node.self_sym_sizes.size());
    const int64_t dropped = node.dim < 0 ? node.dim + dims : node.dim;
    return put_back(call, node.self_sym_sizes,
                    [dropped](size_t dim) { return static_cast<int64_t>(dim) == dropped; });
  }
  template <typename MayDrop>
  static NativeOutcome put_back(NativeCall& call, c10::ArrayRef<c10::SymInt> noted, MayDrop&& may_drop) {
    const NativeOutcome odd = look_at(call);
    if (odd != NativeOutcome::kRan) return odd;
    at::DimVector sizes;
    if (!read_sizes(noted, sizes)) return NativeOutcome::kOddShape;
    Geometry geometry(call.gradients[0]);
    bool changed = false;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] != 1 || !may_drop(dim)) continue;
      if (dim > geometry.sizes.size()) return NativeOutcome::kOddShape;
      geometry.unsqueeze(dim);
      changed = true;
    }
    if (changed) return give_view(call, geometry);
    call.results[0] = std::move(call.gradients[0]);
    return NativeOutcome::kRan;
  }
};

struct Unsqueeze {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.dim < 0; };
  static NativeOutcome run(UnsqueezeBackward0& node, NativeCall& call) {
    const NativeOutcome odd = look_at(call);
    if (odd != NativeOutcome::kRan) return odd;
    Geometry geometry(call.gradients[0]);
    const auto dims = static_cast<int64_t>(geometry.sizes.size());
    const int64_t dim = node.dim < 0 ? node.dim + dims : node.dim;
    if (dim < 0 || dim >= dims || geometry.sizes[static_cast<size_t>(dim)] != 1)
      return NativeOutcome::kOddShape;
    geometry.sizes.erase(geometry.sizes.begin() + dim);
    geometry.strides.erase(geometry.strides.begin() + dim);
    return give_view(call, geometry);
  }
};

struct Expand {
  template <typename N>
  static constexpr bool kFits =
      requires(N& node, at::DimVector& sizes) { read_sizes(node.self_sym_sizes, sizes); };
  static NativeOutcome run(ExpandBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes)) return NativeOutcome::kOddShape;
    if (gradient.sizes() == at::IntArrayRef(sizes) && !sizes.empty()) {
      call.results[0] = std::move(gradient);
      return NativeOutcome::kRan;
    }
    if (!can_reduce(gradient, sizes)) return NativeOutcome::kOddShape;
    if (call.views_are_seen && gradient.dim() != static_cast<int64_t>(sizes.size()) && !sizes.empty()) {
      return NativeOutcome::kSeen;
    }
    call.results[0] = reduce_gradient(std::move(gradient), sizes, /*below_autograd=*/true);
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_shapes(Table& table) {
  table.add<TBackward0, Transpose>("TBackward0");
  table.add<TransposeBackward0, Transpose>("TransposeBackward0");
  table.add<PermuteBackward0, Permute>("PermuteBackward0");
  table.add<ViewBackward0, Reshape>("ViewBackward0");
  table.add<UnsafeViewBackward0, Reshape>("UnsafeViewBackward0");
  table.add<ReshapeAliasBackward0, Reshape>("ReshapeAliasBackward0");
  table.add<SqueezeBackward0, Squeeze>("SqueezeBackward0");
  table.add<SqueezeBackward1, Squeeze>("SqueezeBackward1");
  table.add<UnsqueezeBackward0, Unsqueeze>("UnsqueezeBackward0");
  table.add<ExpandBackward0, Expand>("ExpandBackward0");
}

}  // namespace overdrive::engine::native_nodes
