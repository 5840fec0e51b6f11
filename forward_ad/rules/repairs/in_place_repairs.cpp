// In place with an operand that shares memory with the tensor, y.mul_(y): LibTorch's formulas
// read the operand's tangent when that of the tensor has been overwritten already, and
// silently give a wrong one. Reverse mode saves a tensor that is then overwritten, and refuses.
// So the operand is copied first, which is what the operator means. And counting, which a layer refuses where
// the count is from outside of it.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/rule_support.h"

#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/xlogy_ops.h>

namespace overdrive::forward_ad::rules {

namespace {

using at::Tensor;
using c10::DispatchKeySet;

// That of the plain tensor, since nobody may ask a wrapper for its own.
const c10::StorageImpl* memory_of(const Tensor& tensor) {
  return innermost_of(tensor).unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

bool share_memory(const Tensor& self, const Tensor& operand) {
  return operand.defined() && memory_of(self) != nullptr && memory_of(self) == memory_of(operand);
}

template <typename Op>
Tensor& with_operand_apart(DispatchKeySet keys, Tensor& self, const Tensor& operand) {
  return Op::redispatch(keys & kBelow, self, share_memory(self, operand) ? operand.clone() : operand);
}

template <typename Op>
Tensor& with_both_apart(DispatchKeySet keys, Tensor& self, const Tensor& a, const Tensor& b,
                        const c10::Scalar& factor) {
  return Op::redispatch(keys & kBelow, self, share_memory(self, a) ? a.clone() : a,
                        share_memory(self, b) ? b.clone() : b, factor);
}

Tensor& lerp(DispatchKeySet keys, Tensor& self, const Tensor& end, const Tensor& weight) {
  return at::_ops::lerp__Tensor::redispatch(keys & kBelow, self, share_memory(self, end) ? end.clone() : end,
                                            share_memory(self, weight) ? weight.clone() : weight);
}

// As the modules of batch norm count their batches. A number added to what has no derivative gives it none.
Tensor& count_up(DispatchKeySet keys, Tensor& self, const c10::Scalar& other, const c10::Scalar& alpha) {
  const bool is_from_outside = is_plain(self) && !self.requires_grad() && !has_tangent(self);
  if (!is_from_outside || !keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) {
    return at::_ops::add__Scalar::redispatch(keys & kBelow, self, other, alpha);
  }
  BelowLayer below_all(0);
  return at::_ops::add__Scalar::call(self, other, alpha);
}

}  // namespace

// Those that test/forward_ad/op_table_views.cpp would find wrong, and their kin.
void add_in_place_rules(torch::Library& table) {
  table.impl("mul_.Tensor", TORCH_FN(with_operand_apart<at::_ops::mul__Tensor>));
  table.impl("div_.Tensor", TORCH_FN(with_operand_apart<at::_ops::div__Tensor>));
  table.impl("pow_.Tensor", TORCH_FN(with_operand_apart<at::_ops::pow__Tensor>));
  table.impl("fmod_.Tensor", TORCH_FN(with_operand_apart<at::_ops::fmod__Tensor>));
  table.impl("remainder_.Tensor", TORCH_FN(with_operand_apart<at::_ops::remainder__Tensor>));
  table.impl("xlogy_.Tensor", TORCH_FN(with_operand_apart<at::_ops::xlogy__Tensor>));
  table.impl("atan2_", TORCH_FN(with_operand_apart<at::_ops::atan2_>));
  table.impl("hypot_", TORCH_FN(with_operand_apart<at::_ops::hypot_>));
  table.impl("addcmul_", TORCH_FN(with_both_apart<at::_ops::addcmul_>));
  table.impl("addcdiv_", TORCH_FN(with_both_apart<at::_ops::addcdiv_>));
  table.impl("lerp_.Tensor", TORCH_FN(lerp));
  table.impl("add_.Scalar", TORCH_FN(count_up));
}

}  // namespace overdrive::forward_ad::rules
