// Matrix products: the host's formulas on the host's kernels, with the transposed factors made without the
// dispatcher. A factor that lies in columns gets a gradient that lies in columns.
#include "engine/host/gradient_tensors.h"
#include "engine/host/saved_variable.h"
#include "engine/native_nodes/factor.h"
#include "engine/native_nodes/table.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

using Sizes = std::vector<c10::SymInt>;

at::Tensor transposed(const at::Tensor& t) {
  const int64_t sizes[] = {t.size(1), t.size(0)}, strides[] = {t.stride(1), t.stride(0)};
  return view_of(t, sizes, strides, t.storage_offset());
}

at::Tensor last_two_transposed(const at::Tensor& t) {
  const int64_t sizes[] = {t.size(0), t.size(2), t.size(1)},
                strides[] = {t.stride(0), t.stride(2), t.stride(1)};
  return view_of(t, sizes, strides, t.storage_offset());
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::cpu::mm(a, b);
}

bool is_matrix(const at::Tensor& t, at::ScalarType type) {
  return is_strided(t) && t.dim() == 2 && t.scalar_type() == type;
}

bool lies_in_columns(const Sizes& sizes, const Sizes& strides) {
  return strides[0] == 1 && strides[1] == sizes[0];
}

// Whether the host's note of a factor describes a dense matrix of known sizes.
bool is_usual(const Sizes& sizes, const Sizes& strides, at::Layout layout) {
  if (layout != at::kStrided || sizes.size() != 2 || strides.size() != 2) return false;
  return !sizes[0].is_heap_allocated() && !sizes[1].is_heap_allocated() && !strides[0].is_heap_allocated() &&
         !strides[1].is_heap_allocated();
}

at::Tensor first_factor(const at::Tensor& gradient, const at::Tensor& second, const Sizes& sizes,
                        const Sizes& strides) {
  if (!lies_in_columns(sizes, strides)) return product(gradient, transposed(second));
  return transposed(product(second, transposed(gradient)));
}

at::Tensor second_factor(const at::Tensor& gradient, const at::Tensor& first, const Sizes& sizes,
                         const Sizes& strides) {
  if (!lies_in_columns(sizes, strides)) return product(transposed(first), gradient);
  return transposed(product(transposed(gradient), first));
}

// The saved factor, or null; its sizes fit when the forward ran.
const at::Tensor* read_matrix(const torch::autograd::SavedVariable& saved, at::ScalarType type) {
  const at::Tensor* found = host::read_saved(saved);
  return found != nullptr && is_matrix(*found, type) ? found : nullptr;
}

struct Mm {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    lies_in_columns(node.self_sym_sizes, node.self_sym_strides);
    lies_in_columns(node.mat2_sym_sizes, node.mat2_sym_strides);
    node.self_layout == node.mat2_layout;
    host::read_saved(node.self_);
    host::read_saved(node.mat2_);
  };
  static NativeOutcome run(MmBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient) || gradient.dim() != 2) return NativeOutcome::kOddGradient;
    const bool first = call.wants(0), second = call.wants(1);
    // The host notes the sizes of a factor that wants a gradient.
    if ((first && !is_usual(node.self_sym_sizes, node.self_sym_strides, node.self_layout)) ||
        (second && !is_usual(node.mat2_sym_sizes, node.mat2_sym_strides, node.mat2_layout))) {
      return NativeOutcome::kOddShape;
    }
    if (call.views_are_seen && ((first && lies_in_columns(node.self_sym_sizes, node.self_sym_strides)) ||
                                (second && lies_in_columns(node.mat2_sym_sizes, node.mat2_sym_strides)))) {
      return NativeOutcome::kSeen;
    }
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const at::Tensor *self = nullptr, *mat2 = nullptr;
    if (second && (self = read_matrix(node.self_, gradient.scalar_type())) == nullptr)
      return NativeOutcome::kOddSaved;
    if (first && (mat2 = read_matrix(node.mat2_, gradient.scalar_type())) == nullptr)
      return NativeOutcome::kOddSaved;
    if (second) {
      call.results[1] = second_factor(gradient, *self, node.mat2_sym_sizes, node.mat2_sym_strides);
    }
    if (first) {
      call.results[0] = first_factor(gradient, *mat2, node.self_sym_sizes, node.self_sym_strides);
    }
    return NativeOutcome::kRan;
  }
};

struct Addmm {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    lies_in_columns(node.mat1_sym_sizes, node.mat1_sym_strides);
    lies_in_columns(node.mat2_sym_sizes, node.mat2_sym_strides);
    node.mat1_layout == node.mat2_layout;
    host::read_saved(node.mat1_);
    host::read_saved(node.mat2_);
    is_one(node.alpha) && is_one(node.beta);
  };
  static NativeOutcome run(AddmmBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient) || gradient.dim() != 2) return NativeOutcome::kOddGradient;
    if (!is_one(node.alpha) || !is_one(node.beta)) return NativeOutcome::kOddValue;
    const bool first = call.wants(1), second = call.wants(2);
    if ((first && !is_usual(node.mat1_sym_sizes, node.mat1_sym_strides, node.mat1_layout)) ||
        (second && !is_usual(node.mat2_sym_sizes, node.mat2_sym_strides, node.mat2_layout))) {
      return NativeOutcome::kOddShape;
    }
    if (call.views_are_seen && ((first && lies_in_columns(node.mat1_sym_sizes, node.mat1_sym_strides)) ||
                                (second && lies_in_columns(node.mat2_sym_sizes, node.mat2_sym_strides)))) {
      return NativeOutcome::kSeen;
    }
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const at::Tensor *mat1 = nullptr, *mat2 = nullptr;
    if (second && (mat1 = read_matrix(node.mat1_, gradient.scalar_type())) == nullptr)
      return NativeOutcome::kOddSaved;
    if (first && (mat2 = read_matrix(node.mat2_, gradient.scalar_type())) == nullptr)
      return NativeOutcome::kOddSaved;
    if (first) {
      call.results[1] = first_factor(gradient, *mat2, node.mat1_sym_sizes, node.mat1_sym_strides);
    }
    if (second) {
      call.results[2] = second_factor(gradient, *mat1, node.mat2_sym_sizes, node.mat2_sym_strides);
    }
    if (call.wants(0)) call.results[0] = std::move(gradient);
    return NativeOutcome::kRan;
  }
};

struct Bmm {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    host::read_saved(node.self_);
    host::read_saved(node.mat2_);
  };
  static NativeOutcome run(BmmBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient) || gradient.dim() != 3) return NativeOutcome::kOddGradient;
    const bool first = call.wants(0), second = call.wants(1);
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const auto read = [&](const torch::autograd::SavedVariable& saved) {
      const at::Tensor* found = host::read_saved(saved);
      const bool fits = found != nullptr && is_strided(*found) && found->dim() == 3 &&
                        found->scalar_type() == gradient.scalar_type();
      return fits ? found : nullptr;
    };
    const at::Tensor *self = nullptr, *mat2 = nullptr;
    if (second && (self = read(node.self_)) == nullptr) return NativeOutcome::kOddSaved;
    if (first && (mat2 = read(node.mat2_)) == nullptr) return NativeOutcome::kOddSaved;
    const at::AutoDispatchBelowADInplaceOrView below;
    if (second) call.results[1] = at::cpu::bmm(last_two_transposed(*self), gradient);
    if (first) call.results[0] = at::cpu::bmm(gradient, last_two_transposed(*mat2));
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_products(Table& table) {
  table.add<MmBackward0, Mm>("MmBackward0");
  table.add<AddmmBackward0, Addmm>("AddmmBackward0");
  table.add<BmmBackward0, Bmm>("BmmBackward0");
}

}  // namespace overdrive::engine::native_nodes
