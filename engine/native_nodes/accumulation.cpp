// Leaves: a gradient is taken over, or added to the one that is there. What is stored looks as LibTorch's own
// node leaves it: the tensor without history, its version raised by a sum.
#include "engine/host/gradient_tensors.h"
#include "engine/host/saved_variable.h"
#include "engine/kernels/elementwise.h"
#include "engine/native_nodes/table.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

namespace overdrive::engine::native_nodes {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::AutogradMeta;

// A plain leaf, of which nobody is told when its gradient comes.
bool is_usual_leaf(const at::Tensor& variable) {
  if (!variable.defined() || !is_ordinary(*variable.unsafeGetTensorImpl())) return false;
  const AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(variable);
  return meta != nullptr && meta->requires_grad_ && !meta->is_view_ && !meta->grad_fn_ &&
         meta->post_acc_grad_hooks_ == nullptr;
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) { return a.storage().is_alias_of(b.storage()); }

struct Accumulate {
  template <typename N>
  static constexpr bool kFits = requires(N& node, const AutogradMeta& meta) {
    node.variable.mutable_grad();
    meta.requires_grad_ && !meta.is_view_ && !meta.grad_fn_ && meta.post_acc_grad_hooks_ == nullptr;
  };
  static NativeOutcome run(AccumulateGrad& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    if (!is_usual_leaf(node.variable) || gradient.sizes() != node.variable.sizes())
      return NativeOutcome::kOddSaved;
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    at::Tensor& have = node.variable.mutable_grad();
    return have.defined() ? add(node.variable, have, gradient) : take_over(node.variable, have, gradient);
  }

  // The host stores a detached alias of a gradient that nobody else has; the gradient without history is the
  // same, but for a weak owner, who would see the gradient live on.
  static NativeOutcome take_over(const at::Tensor& variable, at::Tensor& have, at::Tensor& gradient) {
    if (!has_one_owner(gradient)) return NativeOutcome::kOddGradient;
    if (!torch::autograd::utils::obeys_layout_contract(gradient, variable)) return NativeOutcome::kOddShape;
    gradient.unsafeGetTensorImpl()->set_autograd_meta(nullptr);
    have = std::move(gradient);
    return NativeOutcome::kRan;
  }

  static NativeOutcome add(const at::Tensor& variable, const at::Tensor& have, const at::Tensor& gradient) {
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (!is_plain(have) || !same_sizes_and_type(have, gradient) || share_memory(have, gradient)) {
      return NativeOutcome::kOddSaved;
    }
    // The host warns of another layout.
    if (!torch::autograd::utils::obeys_layout_contract(have, variable)) return NativeOutcome::kOddShape;
    if (is_large(gradient.numel())) return NativeOutcome::kLarge;
    for_type_of(have, [&](auto zero) {
      using T = decltype(zero);
      T* const sum = mutable_data_of<T>(have);
      kernels::loops<T>().add(sum, sum, data_of<T>(gradient), have.numel());
    });
    have.unsafeGetTensorImpl()->bump_version();
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_accumulation(Table& table) {
  table.add<AccumulateGrad, Accumulate>("torch::autograd::AccumulateGrad");
}

}  // namespace overdrive::engine::native_nodes
