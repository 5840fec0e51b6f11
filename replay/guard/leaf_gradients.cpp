#include "replay/guard/leaf_gradients.h"

#include "replay/guard/kept_gradients.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace overdrive::replay {

namespace {

constexpr const char* kOtherGradients = "Gradients are defined before or after one call, but not the other.";

}  // namespace

std::vector<LeafGradient> gradients_now(const Program& program) {
  std::vector<LeafGradient> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const WeakTensor& weak) {
    const at::Tensor leaf = tensor_of(weak);
    if (!may_have_gradient(leaf) || !seen.insert(leaf.unsafeGetTensorImpl()).second) return;
    const at::Tensor& gradient = leaf.grad();
    result.push_back({.leaf = weak,
                      .raw = leaf.unsafeGetTensorImpl(),
                      .required = leaf.requires_grad(),
                      .defined_before = gradient.defined(),
                      .before = gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr});
    if (gradient.defined()) result.back().kept_address = WeakTensor(gradient.getIntrusivePtr());
  };
  for (const OutsideTensor& outside : program.outside) add(outside.weak);
  for (const WeakTensor& leaf : program.leaves) add(leaf);
  return result;
}

std::string note_gradients_after(std::vector<LeafGradient>& gradients, const Program& program,
                                 const std::vector<at::Tensor>& results) {
  for (const OutsideTensor& outside : program.outside) {
    const at::Tensor leaf = tensor_of(outside.weak);
    if (!leaf.defined() || !is_leaf_with_gradient(leaf)) continue;
    const bool known = std::any_of(gradients.begin(), gradients.end(),
                                   [&](const LeafGradient& gradient) { return gradient.raw == outside.raw; });
    if (!known) return "The step uses other parameters in each call.";
  }
  std::erase_if(gradients, [](const auto& each) { return !each.required && each.leaf.expired(); });
  for (LeafGradient& gradient : gradients) {
    const at::Tensor leaf = tensor_of(gradient.leaf);
    if (!leaf.defined()) return "A parameter died in the call.";
    gradient.after.reset();
    if (leaf.grad().defined()) gradient.after = WeakTensor(leaf.grad().getIntrusivePtr());
  }
  note_holders(gradients, results);
  return "";
}

void note_gradients_left(Program& program) {
  for (const LeafGradient& gradient : gradients_now(program)) {
    const at::Tensor left(gradient.kept_address ? gradient.kept_address->lock() : nullptr);
    for (Memory& memory : program.memories) {
      if (left.defined() && left.has_storage() && left.storage().unsafeGetStorageImpl() == memory.raw)
        memory.is_left_as_gradient = true;
    }
  }
}

// One of the two may know more leaves that the function has not touched.
std::string gradient_difference(const std::vector<LeafGradient>& before, std::vector<LeafGradient>& now) {
  std::unordered_map<const c10::TensorImpl*, const LeafGradient*> known;
  for (const LeafGradient& gradient : before) known.emplace(gradient.raw, &gradient);
  for (LeafGradient& gradient : now) {
    const auto found = known.find(gradient.raw);
    const LeafGradient* const other = found == known.end() ? nullptr : found->second;
    if (other) known.erase(found);
    const bool alike = other && other->defined_before == gradient.defined_before &&
                       other->after.has_value() == gradient.after.has_value();
    const bool both_leave_it = gradient.is_left_alone() && (!other || other->is_left_alone());
    if (!alike && !both_leave_it) return kOtherGradients;
    gradient.may_be_any = both_leave_it && other && (!alike || other->may_be_any);
  }
  const bool others_are_left =
      std::all_of(known.begin(), known.end(), [](const auto& each) { return each.second->is_left_alone(); });
  return others_are_left ? "" : kOtherGradients;
}

std::vector<WeakTensor> leaves_that_take_turns(const std::vector<LeafGradient>& before,
                                               const std::vector<LeafGradient>& now) {
  std::unordered_map<const c10::TensorImpl*, bool> had_one;
  for (const LeafGradient& gradient : before) had_one.emplace(gradient.raw, gradient.defined_before);
  std::vector<WeakTensor> leaves;
  bool any = false;
  for (const LeafGradient& gradient : now) {
    if (gradient.is_left_alone()) continue;
    leaves.push_back(gradient.leaf);
    const auto known = had_one.find(gradient.raw);
    any |= known != had_one.end() && known->second != gradient.defined_before;
  }
  return any ? leaves : std::vector<WeakTensor>();
}

}  // namespace overdrive::replay
