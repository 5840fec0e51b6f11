#include "forward_ad/levels/dual_meta.h"

#include "forward_ad/levels/level_registry.h"

#include <c10/core/AutogradState.h>

#include <utility>

namespace overdrive::forward_ad {

DualMeta::DualMeta(uint64_t level, std::shared_ptr<ForwardGrad> tangents)
    : level_(level), tangents_(std::move(tangents)) {}

DualMeta::~DualMeta() { tangents_->clear(); }

const at::Tensor& DualMeta::fw_grad(uint64_t host_level, const at::TensorBase& self) const {
  if (!c10::AutogradState::get_tls_state().get_fw_grad_mode()) return ForwardGrad::undef_grad();
  const at::Tensor& tangent = tangents_->peek(level_);
  if (!tangent.defined()) return AutogradMeta::fw_grad(host_level, self);
  // A thread without a list of its own got its layers with the thread-local state.
  TORCH_CHECK(active_levels().empty() || is_active_here(level_), "A dual tensor of forward AD level ", level_,
              " is used on a thread that has not entered this level. Put `LevelScope here(level)` around the "
              "use. Levels active on this thread: ",
              active_levels_text(), ".");
  return tangent;
}

void DualMeta::set_fw_grad(const at::TensorBase& tangent, const at::TensorBase& self, uint64_t host_level,
                           bool is_inplace_op) {
  const at::Tensor& known = tangents_->peek(level_);
  if (!known.defined()) return AutogradMeta::set_fw_grad(tangent, self, host_level, is_inplace_op);
  TORCH_INTERNAL_ASSERT(is_inplace_op && known.is_same(tangent),
                        "an in-place operator must write into the tangent of a dual, not replace it");
}

}  // namespace overdrive::forward_ad
