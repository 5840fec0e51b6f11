#include "replay/record/kept_casts.h"

#include "replay/record/environment.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace overdrive::replay {

std::vector<at::Tensor> made_casts(const std::vector<KeptCast>& casts) {
  std::vector<at::Tensor> made;
  for (const KeptCast& cast : casts) {
    const at::Tensor weight(cast.weight.lock());
    made.push_back(weight.defined() ? at::autocast::cached_cast(cast.type, weight, at::kCPU) : at::Tensor());
  }
  return made;
}

at::Tensor weight_of_cast(const at::Tensor& tensor) {
  const base::NodePtr node = tensor.grad_fn();
  if (!node || node->num_outputs() != 1 || node->name() != "ToCopyBackward0") return {};
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node->next_edge(0).function.get());
  if (!leaf || leaf->variable.scalar_type() != at::kFloat) return {};
  return leaf->variable;
}

bool is_kept(const KeptCast& cast, uint64_t next_node) {
  const at::AutoGradMode with_graph(true);
  const at::Tensor weight(cast.weight.lock());
  if (!weight.defined()) return false;
  const base::NodePtr node = at::autocast::cached_cast(cast.type, weight, at::kCPU).grad_fn();
  return !node || node->sequence_nr() < next_node;
}

AutocastMode AutocastMode::now() {
  AutocastMode mode;
  mode.is_in_context_ = is_in_autocast_context();
  mode.is_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  mode.has_cache_ = at::autocast::is_autocast_cache_enabled();
  mode.type_ = at::autocast::get_autocast_dtype(at::kCPU);
  return mode;
}

AutocastMode AutocastMode::off() {
  AutocastMode mode = now();
  mode.is_enabled_ = false;
  return mode;
}

AutocastMode::Scope::Scope(const AutocastMode& mode)
    : before_enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
      before_cache_(at::autocast::is_autocast_cache_enabled()),
      before_type_(at::autocast::get_autocast_dtype(at::kCPU)) {
  if (mode.is_in_context_) at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, mode.is_enabled_);
  at::autocast::set_autocast_cache_enabled(mode.has_cache_);
  at::autocast::set_autocast_dtype(at::kCPU, mode.type_);
  nests_ = mode.is_in_context_;
}

AutocastMode::Scope::~Scope() {
  if (nests_ && at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, before_enabled_);
  at::autocast::set_autocast_cache_enabled(before_cache_);
  at::autocast::set_autocast_dtype(at::kCPU, before_type_);
}

}  // namespace overdrive::replay
