// Losses whose derivatives LibTorch cannot differentiate forward, as their definitions.
#include "forward_ad/rules/rule_support.h"

#include <vector>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// The gradient of each element's own loss.
Tensor of_elements(const Tensor& grad, int64_t reduction, const Tensor& elements) {
  return reduction == at::Reduction::Mean ? grad / elements.numel() : grad;
}

// -weight[class] at each sample's class, and zero elsewhere, times its gradient.
Tensor nll_gradient(const Tensor& grad, const Tensor& self, const Tensor& target,
                    const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore_index,
                    const Tensor& total_weight) {
  const int64_t classes = self.dim() < 2 ? 0 : 1;
  Tensor of_sample = reduction == at::Reduction::Mean ? grad / total_weight : grad;
  if (of_sample.dim() > 0 && reduction == at::Reduction::None && self.dim() > 1)
    of_sample = of_sample.unsqueeze(classes);
  Tensor target_class = target.unsqueeze(classes), counted = target_class != ignore_index;
  target_class = at::where(counted, target_class, at::zeros_like(target_class));
  Tensor chosen = at::scatter(at::zeros_like(self), classes, target_class, -1);
  if (is_given(weight)) {
    std::vector<int64_t> shape(static_cast<size_t>(self.dim()), 1);
    shape[static_cast<size_t>(classes)] = weight->numel();
    chosen = chosen * weight->view(shape);
  }
  return chosen * at::where(counted, of_sample, at::zeros_like(of_sample));
}

template <typename Op>
Tensor nll_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self, const Tensor& target,
                    const std::optional<Tensor>& weight, int64_t reduction, c10::SymInt ignore_index,
                    const Tensor& total_weight) {
  if (!any_tangent(grad, self)) {
    return Op::redispatch(keys & kBelow, grad, self, target, weight, reduction, ignore_index, total_weight);
  }
  return nll_gradient(grad, self, target, weight, reduction, ignore_index.expect_int(), total_weight);
}

Tensor huber_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self, const Tensor& target,
                      int64_t reduction, double delta) {
  if (!any_tangent(grad, self, target)) {
    return at::_ops::huber_loss_backward::redispatch(keys & kBelow, grad, self, target, reduction, delta);
  }
  return of_elements(grad, reduction, self) * (self - target).clamp(-delta, delta);
}

Tensor soft_margin_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& self, const Tensor& target,
                            int64_t reduction) {
  if (!any_tangent(grad, self, target)) {
    return at::_ops::soft_margin_loss_backward::redispatch(keys & kBelow, grad, self, target, reduction);
  }
  return of_elements(grad, reduction, self) * -target * at::sigmoid(-target * self);
}

}  // namespace

void add_loss_rules(torch::Library& table) {
  table.impl("nll_loss_backward", TORCH_FN(nll_backward<at::_ops::nll_loss_backward>));
  table.impl("nll_loss2d_backward", TORCH_FN(nll_backward<at::_ops::nll_loss2d_backward>));
  table.impl("huber_loss_backward", TORCH_FN(huber_backward));
  table.impl("soft_margin_loss_backward", TORCH_FN(soft_margin_backward));
}

}  // namespace overdrive::forward_ad::rules
