#include "replay/guard/leaf_flags.h"

#include <algorithm>
#include <unordered_set>

namespace overdrive::replay {

namespace {

constexpr const char* kOtherSizes =
    "a tensor that the step may look at has other sizes, strides or another type";

bool is_strided(const c10::TensorImpl& tensor) { return tensor.layout() == at::kStrided; }

}  // namespace

LeafFlag::LeafFlag(const at::Tensor& leaf)
    : weak_(leaf.getIntrusivePtr()),
      tensor_(leaf.unsafeGetTensorImpl()),
      requires_grad_(leaf.requires_grad()),
      type_(leaf.dtype()),
      sizes_(leaf.sizes()) {
  if (!is_strided(*tensor_)) return;
  strides_ = c10::DimVector(leaf.strides());
  offset_ = leaf.storage_offset();
}

const char* LeafFlag::difference() const {
  if (weak_.expired()) return nullptr;
  if (has_changed()) return kOtherFlag;
  const bool is_alike = tensor_->dtype() == type_ && tensor_->sizes() == sizes_;
  const bool is_placed_alike =
      !is_strided(*tensor_) || (tensor_->strides() == strides_ && tensor_->storage_offset() == offset_);
  return is_alike && is_placed_alike ? nullptr : kOtherSizes;
}

LeafFlags::LeafFlags(const Program& program) {
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const WeakTensor& weak) {
    const at::Tensor tensor(weak.lock());
    if (tensor.defined() && tensor.is_leaf() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      flags_.emplace_back(tensor);
  };
  for (const OutsideTensor& outside : program.outside) {
    if (outside.lives) add(outside.weak);
  }
  for (const WeakTensor& leaf : program.leaves) add(leaf);
}

const char* LeafFlags::difference() const {
  const bool differs =
      std::any_of(flags_.begin(), flags_.end(), [](const LeafFlag& flag) { return flag.has_changed(); });
  return differs ? kOtherFlag : nullptr;
}

}  // namespace overdrive::replay
