// In-place operators whose operand shares memory with the tensor, as in y.mul_(y) and y[0].mul_(y[0]).
//
// The fault: the forward formula first overwrites the tangent of the tensor and then reads the tangent of the
// operand, which is the same memory. For y.mul_(y) at x along v the tangent is 2 x^2 v instead of 2 x v.
// (Reverse mode is safe: it saves the tensor, finds it overwritten and refuses.) The repair copies such an
// operand first, which is what the operator means.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// The memory of the plain tensor: a wrapper does not tell its own.
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

std::vector<Tensor> try_in_place() {
  std::vector<Tensor> tangents;
  const auto try_out = [&](auto write) {
    const Formula f = [&](const Tensor& x) {
      Tensor y = x * 1;
      write(y);
      return y;
    };
    tangents.push_back(first_order(f, row(1.25, {4})).at(0));
  };
  try_out([](Tensor& y) { y.mul_(y); });
  try_out([](Tensor& y) { y.div_(y); });
  try_out([](Tensor& y) { y.pow_(y); });
  try_out([](Tensor& y) { y.fmod_(y); });
  try_out([](Tensor& y) { y.remainder_(y); });
  try_out([](Tensor& y) { y.xlogy_(y); });
  try_out([](Tensor& y) { y.atan2_(y); });
  try_out([](Tensor& y) { y.hypot_(y); });
  try_out([](Tensor& y) { y.addcmul_(y, y); });
  try_out([](Tensor& y) { y.addcdiv_(y, y); });
  try_out([](Tensor& y) { y.lerp_(y, y); });
  return tangents;
}

void add_in_place(torch::Library& table) {
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
}

}  // namespace

void list_in_place_repairs(std::vector<Repair>& list) {
  list.push_back(
      {"in-place operators with an operand that shares memory with the tensor", add_in_place, try_in_place});
}

}  // namespace overdrive::forward_ad::rules
