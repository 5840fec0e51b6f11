#include "hooks/interface/hook_calls.h"

#include "hooks/interface/geometry.h"

#include <utility>

namespace overdrive::hooks {
namespace {
std::string layout_of(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided ? std::string() : c10::str(tensor.layout(), " ");
}

}  // namespace

int& InsideHook::depth() {
  thread_local int depth = 0;
  return depth;
}

at::Tensor ordinary(at::Tensor tensor) {
  if (tensor.is_inference()) tensor = tensor.clone();
  if (tensor._is_zerotensor()) tensor = at::zeros(tensor.sizes(), tensor.options());
  if (tensor.is_conj() || tensor.is_neg()) tensor = tensor.resolve_conj().resolve_neg();
  return tensor;
}

at::Tensor checked_unpack(SavedTensorHooks& hooks, Packed& packed, const UnpackInfo& info, const PackedAs& as) {
  at::Tensor result = hooks.unpack(packed, info);
  const auto expected = [&] {
    return c10::str("a ", as.dtype.name(), " tensor of sizes ", as.sizes, " on ", as.device,
                    info.node != nullptr ? " for " + info.node->name() : "");
  };
  TORCH_CHECK(result.defined(), "The unpack hook of ", hooks.name(),
              " returned an undefined tensor; it was to give back ", expected(), ".");
  TORCH_CHECK(same_numbers(result.sizes(), as.sizes) && result.dtype() == as.dtype &&
                  result.device() == as.device && result.layout() == c10::kStrided,
              "The unpack hook of ", hooks.name(), " returned a ", layout_of(result), result.dtype().name(),
              " tensor of sizes ", result.sizes(), " on ", result.device(), "; it was to give back ",
              expected(), ". Sizes, type and device must be those that pack was given.");
  return with_strides(ordinary(std::move(result)), as.strides);
}

}  // namespace overdrive::hooks
