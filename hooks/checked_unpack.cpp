#include "hooks/checked_unpack.h"

#include "hooks/geometry.h"

#include <utility>

namespace overdrive::hooks {

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
              "The unpack hook of ", hooks.name(), " returned a ", result.dtype().name(), " tensor of sizes ",
              result.sizes(), " on ", result.device(), "; it was to give back ", expected(),
              ". Sizes, type and device must be those that pack was given.");
  if (result.is_inference()) result = result.clone();  // such a tensor has no version, and ends no derivative
  if (result.is_conj() || result.is_neg()) result = result.resolve_conj().resolve_neg();
  return with_strides(std::move(result), as.strides);
}

}  // namespace overdrive::hooks
