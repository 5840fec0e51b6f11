#include "replay/record/lazy_bits.h"

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>

#include <algorithm>
#include <string>
#include <vector>

namespace overdrive::replay {

namespace {

c10::OperatorHandle operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// As resolve_conj() and resolve_neg() copy, by operators that know no bit.
at::Tensor copied(const at::Tensor& tensor, const CallRecorded& call) {
  c10::Stack stack{as_stored(tensor), c10::IValue()};
  call(operator_named("aten::clone"), stack);
  if (tensor.is_conj()) call(operator_named("aten::conj_physical_"), stack);
  if (tensor.is_neg()) call(operator_named("aten::neg_"), stack);
  return stack.back().toTensor();
}

// Kernels that look at the bits themselves, and make of them more than a copy would.
bool knows_bits(const c10::OperatorHandle& handle) {
  const std::string& name = handle.operator_name().name;
  if (name == "aten::clone" || name == "aten::copy_" || name == "aten::_to_copy") return false;
  return handle.hasKernelForDispatchKey(c10::DispatchKey::Conjugate) ||
         handle.hasKernelForDispatchKey(c10::DispatchKey::Negative);
}

}  // namespace

at::Tensor as_stored(const at::Tensor& tensor) {
  at::Tensor result = tensor;
  if (result.is_conj()) result = at::_conj(result);
  if (result.is_neg()) result = at::_neg_view(result);
  return result;
}

void resolve_lazy_bits(const c10::OperatorHandle& handle, c10::Stack& stack, const CallRecorded& call) {
  const auto& arguments = handle.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& given = stack[first + i];
    const bool is_written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    if (is_written || !(given.isTensor() || given.isTensorList())) continue;
    if (given.isTensor()) {
      if (has_lazy_bit(given.toTensor()) && !knows_bits(handle)) given = copied(given.toTensor(), call);
      continue;
    }
    std::vector<at::Tensor> tensors = given.toTensorVector();
    if (std::none_of(tensors.begin(), tensors.end(), has_lazy_bit) || knows_bits(handle)) continue;
    for (at::Tensor& tensor : tensors) {
      if (has_lazy_bit(tensor)) tensor = copied(tensor, call);
    }
    given = tensors;
  }
}

}  // namespace overdrive::replay
