// The level of a driver: the outermost one has no layer where that is possible. What goes into it, and what
// comes out with no trace of it. On the stack of one thread. Leaves the function to the drivers. Private.
#pragma once

#include "forward_ad/drivers/driver_functions.h"
#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/levels/bare_level.h"
#include "forward_ad/levels/dual.h"
#include "forward_ad/levels/level_registry.h"

#include <algorithm>

namespace overdrive::forward_ad::detail {

// LibTorch makes plain duals of these tensors; others need a layer.
inline bool can_be_plain_duals(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.layout() == at::kStrided && !tensor.is_inference() && !tensor.is_nested());
  });
}

// The level of a driver. The outermost one has no layer where that is possible.
class DriverLevel : public DualLevel {
 public:
  explicit DriverLevel(bool plain_inputs) : DualLevel(plain_inputs ? Ground::kBareIfPossible : Ground::kLayer) {
    is_bare_ = BareLevel::of(*LevelRegistry::get_by_idx(idx())) != nullptr;
  }
  bool is_bare() const { return is_bare_; }

  // As unpack_dual(), but the primal of a plain tensor is the tensor that the function returned: it loses its
  // tangent with the level.
  DualParts unpack(const at::Tensor& tensor) const {
    DualParts parts = unpack_dual(tensor, *this);
    if (is_bare_ && parts.tangent.defined() && at::functorch::maybeGetTensorWrapper(tensor) == nullptr)
      parts.primal = tensor;
    return parts;
  }

 private:
  bool is_bare_;
};

// Takes tangents and their memory away from results: level 0, with the tangents of plain tensors, stays open
// while another thread needs it, and a value that lies beside its tangent keeps the memory of both.
inline void leave_no_trace(Tensors& tensors) {
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (plain_tangent(tensor).defined()) tensor = tensor._fw_primal(0);
    tensor = apart(tensor);
  }
}

}  // namespace overdrive::forward_ad::detail
