// Nodes whose gradient is a view of the incoming one, or that one summed over what the forward repeated.
#include "engine/host/gradient_tensors.h"
#include "engine/native_nodes/table.h"
#include "engine/node/grad_sum.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::own {
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

OwnOutcome give_view(OwnCall& call, const Geometry& geometry) {
  const at::Tensor& gradient = call.gradients[0];
  call.results[0] = view_of(gradient, geometry.sizes, geometry.strides, gradient.storage_offset());
  return OwnOutcome::kRan;
}

// Why no view of the gradient can be made here, or kRan.
OwnOutcome look_at(const OwnCall& call) {
  if (!is_strided(call.gradients[0])) return OwnOutcome::kOddGradient;
  return call.views_are_seen ? OwnOutcome::kSeen : OwnOutcome::kRan;
}

struct Transpose {
  template <typename N>
  static constexpr bool kFits = true;
  static OwnOutcome swap(OwnCall& call, int64_t dim0, int64_t dim1) {
    const OwnOutcome odd = look_at(call);
    if (odd != OwnOutcome::kRan) return odd;
    Geometry geometry(call.gradients[0]);
    const auto dims = static_cast<int64_t>(geometry.sizes.size());
    if (dim0 < 0) dim0 += dims;
    if (dim1 < 0) dim1 += dims;
    if (dim0 < 0 || dim0 >= dims || dim1 < 0 || dim1 >= dims) return OwnOutcome::kOddShape;
    std::swap(geometry.sizes[static_cast<size_t>(dim0)], geometry.sizes[static_cast<size_t>(dim1)]);
    std::swap(geometry.strides[static_cast<size_t>(dim0)], geometry.strides[static_cast<size_t>(dim1)]);
    return give_view(call, geometry);
  }
  static OwnOutcome run(TBackward0&, OwnCall& call) {
    return swap(call, 0, call.gradients[0].dim() < 2 ? 0 : 1);
  }
  static OwnOutcome run(TransposeBackward0& node, OwnCall& call) { return swap(call, node.dim0, node.dim1); }
};

struct Permute {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.dims[0]; };
  static OwnOutcome run(PermuteBackward0& node, OwnCall& call) {
    const OwnOutcome odd = look_at(call);
    if (odd != OwnOutcome::kRan) return odd;
    const at::Tensor& gradient = call.gradients[0];
    const auto dims = gradient.dim();
    if (static_cast<int64_t>(node.dims.size()) != dims) return OwnOutcome::kOddShape;
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
  static OwnOutcome run(N& node, OwnCall& call) {
    const OwnOutcome odd = look_at(call);
    if (odd != OwnOutcome::kRan) return odd;
    const at::Tensor& gradient = call.gradients[0];
    Geometry geometry(gradient);
    if (!read_sizes(node.self_sym_sizes, geometry.sizes)) return OwnOutcome::kOddShape;
    if (c10::multiply_integers(geometry.sizes) != gradient.numel()) return OwnOutcome::kOddShape;
    auto strides = at::detail::computeStride(gradient.sizes(), gradient.strides(), geometry.sizes);
    if (!strides.has_value()) return OwnOutcome::kOddGradient;  // a copy
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
  static OwnOutcome run(SqueezeBackward0& node, OwnCall& call) {
    return put_back(call, node.self_sym_sizes, [](size_t) { return true; });
  }
  static OwnOutcome run(SqueezeBackward1& node, OwnCall& call) {
    const auto dims = static_cast<int64_t>(node.self_sym_sizes.size());
    const int64_t dropped = node.dim < 0 ? node.dim + dims : node.dim;
    return put_back(call, node.self_sym_sizes,
                    [dropped](size_t dim) { return static_cast<int64_t>(dim) == dropped; });
  }
  template <typename MayDrop>
  static OwnOutcome put_back(OwnCall& call, c10::ArrayRef<c10::SymInt> noted, MayDrop&& may_drop) {
    const OwnOutcome odd = look_at(call);
    if (odd != OwnOutcome::kRan) return odd;
    at::DimVector sizes;
    if (!read_sizes(noted, sizes)) return OwnOutcome::kOddShape;
    Geometry geometry(call.gradients[0]);
    bool changed = false;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] != 1 || !may_drop(dim)) continue;
      if (dim > geometry.sizes.size()) return OwnOutcome::kOddShape;
      geometry.unsqueeze(dim);
      changed = true;
    }
    if (changed) return give_view(call, geometry);
    call.results[0] = std::move(call.gradients[0]);
    return OwnOutcome::kRan;
  }
};

struct Unsqueeze {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.dim < 0; };
  static OwnOutcome run(UnsqueezeBackward0& node, OwnCall& call) {
    const OwnOutcome odd = look_at(call);
    if (odd != OwnOutcome::kRan) return odd;
    Geometry geometry(call.gradients[0]);
    const auto dims = static_cast<int64_t>(geometry.sizes.size());
    const int64_t dim = node.dim < 0 ? node.dim + dims : node.dim;
    if (dim < 0 || dim >= dims || geometry.sizes[static_cast<size_t>(dim)] != 1) return OwnOutcome::kOddShape;
    geometry.sizes.erase(geometry.sizes.begin() + dim);
    geometry.strides.erase(geometry.strides.begin() + dim);
    return give_view(call, geometry);
  }
};

struct Expand {
  template <typename N>
  static constexpr bool kFits =
      requires(N& node, at::DimVector& sizes) { read_sizes(node.self_sym_sizes, sizes); };
  static OwnOutcome run(ExpandBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return OwnOutcome::kOddGradient;
    at::DimVector sizes;
    if (!read_sizes(node.self_sym_sizes, sizes)) return OwnOutcome::kOddShape;
    if (gradient.sizes() == at::IntArrayRef(sizes) && !sizes.empty()) {
      call.results[0] = std::move(gradient);
      return OwnOutcome::kRan;
    }
    if (!can_reduce(gradient, sizes)) return OwnOutcome::kOddShape;
    if (call.views_are_seen && gradient.dim() != static_cast<int64_t>(sizes.size()) && !sizes.empty()) {
      return OwnOutcome::kSeen;
    }
    call.results[0] = reduce_gradient(std::move(gradient), sizes, /*below_autograd=*/true);
    return OwnOutcome::kRan;
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

}  // namespace overdrive::engine::own
