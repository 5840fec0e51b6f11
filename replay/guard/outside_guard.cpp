#include "replay/guard/outside_guard.h"

#include "replay/guard/leaf_gradients.h"

#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace overdrive::replay {

namespace {

// Memory that every replay makes anew.
bool makes_memory_of(const Program& program, const at::Tensor& gradient) {
  const auto* storage = gradient.storage().unsafeGetStorageImpl();
  return std::any_of(program.memories.begin(), program.memories.end(), [&](const Memory& memory) {
    return memory.raw == storage && memory.origin == Origin::kMade && memory.lives;
  });
}

}  // namespace

OutsideGuard::OutsideGuard(const BoundProgram& bound) {
  const Program& program = bound.program();
  std::vector<bool> has_owner(program.memories.size());
  for (const OutsideTensor& outside : program.outside) {
    const at::Tensor tensor = tensor_of(outside.weak);
    if (!outside.lives || !tensor.defined()) continue;
    if (tensor.requires_grad() && !tensor.is_leaf()) {
      refusal_ = "The step uses a tensor with a graph from before the call; detach it.";
      return;
    }
    const int memory = program.values[outside.value].memory;
    has_owner[memory] = true;
    if (is_leaf_with_gradient(tensor)) leaf_memories_.push_back(memory);
    add(outside.weak, outside.version_after - outside.version_before);
  }
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin != Origin::kOutside) continue;
    if (!has_owner[i]) {
      refusal_ = c10::str(
          program.operators[std::max(memory.first, 0)].name,
          " uses a tensor through a passing copy of it, as data() makes one; use detach(), or the tensor.");
      return;
    }
  }
  watch_gradients(program);
  watch_flags(program);
  targets_.resize(tensors_.size());
}

void OutsideGuard::add(const WeakTensor& weak, int64_t bumps) {
  const at::Tensor tensor = tensor_of(weak);
  tensors_.push_back({.weak = weak,
                      .tensor = tensor.unsafeGetTensorImpl(),
                      .storage = tensor.storage().unsafeGetStorageImpl(),
                      .address = tensor.storage().data(),
                      .sizes = c10::DimVector(tensor.sizes()),
                      .strides = c10::DimVector(tensor.strides()),
                      .offset = tensor.storage_offset(),
                      .type = tensor.scalar_type(),
                      .keys = tensor.key_set(),
                      .requires_grad = tensor.requires_grad(),
                      .hooks = HookSignature::of(*tensor.unsafeGetTensorImpl()),
                      .bumps = tensor.is_inference() ? 0 : bumps});
}

// A gradient from before the call that the step does not read may be any: the step only saw that there was one.
void OutsideGuard::watch_gradients(const Program& program) {
  for (const LeafGradient& gradient : program.gradients) {
    const at::Tensor after = gradient.after ? tensor_of(*gradient.after) : at::Tensor();
    if (gradient.after && !after.defined()) {
      refusal_ = "A gradient that the step leaves has died since it was recorded.";
      return;
    }
    if (gradient.may_be_any) continue;
    const bool stays = gradient.before != nullptr && gradient.before == after.unsafeGetTensorImpl();
    if (stays && !program.uses_memory_of(after)) {
      // The step leaves it alone, whichever it is.
      gradients_.push_back({.weak = gradient.leaf,
                            .leaf = gradient.raw,
                            .defined_before = true,
                            .stays = true,
                            .is_left_alone = true});
      continue;
    }
    const bool used = std::any_of(tensors_.begin(), tensors_.end(), [&](const GuardedTensor& guarded) {
      return guarded.tensor == gradient.before;
    });
    gradients_.push_back({.weak = gradient.leaf,
                          .leaf = gradient.raw,
                          .defined_before = gradient.defined_before,
                          .before = stays || used ? gradient.before : nullptr,
                          .after = stays ? at::Tensor() : after,
                          .stays = stays,
                          .is_left_alone = !gradient.defined_before && !after.defined()});
    if (!after.defined()) continue;
    if (!after.has_storage()) {
      refusal_ = "A gradient is no ordinary dense tensor.";
      return;
    }
    if (after.requires_grad()) {
      refusal_ =
          "A backward with create_graph leaves gradients with a graph, which a replay would not renew; detach "
          "them, or use grad().";
      return;
    }
    if (!stays && makes_memory_of(program, after)) kept_.add(gradient, after);
    const auto* impl = after.unsafeGetTensorImpl();
    if (std::none_of(tensors_.begin(), tensors_.end(),
                     [&](const GuardedTensor& guarded) { return guarded.tensor == impl; })) {
      // The next call overwrites it; a counter says so to whoever saved it.
      add(WeakTensor(after.getIntrusivePtr()), 1);
    }
  }
}

bool OutsideGuard::may_fit_again() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [](const GuardedTensor& each) { return each.may_fit_again(); });
}

bool OutsideGuard::GuardedTensor::may_fit_again() const {
  const char* const text = difference();
  return !text || (!weak.expired() && tensor->requires_grad() != requires_grad);
}

const char* OutsideGuard::GuardedTensor::difference() const {
  if (weak.expired()) return "a tensor that the step uses was destroyed";
  if (tensor->storage().unsafeGetStorageImpl() != storage || storage->data() != address) {
    return "a tensor that the step uses has other memory";
  }
  if (tensor->sizes() != sizes || tensor->strides() != strides || tensor->storage_offset() != offset ||
      c10::typeMetaToScalarType(tensor->dtype()) != type) {
    return "a tensor that the step uses has other sizes, strides or another type";
  }
  if (tensor->key_set() != keys) return "a tensor that the step uses is of another kind";
  if (tensor->requires_grad() != requires_grad) return kOtherFlag;
  if (requires_grad && HookSignature::of(*tensor) != hooks)
    return "a hook of a parameter was added or taken away";
  return nullptr;
}

void OutsideGuard::watch_flags(const Program& program) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const GuardedTensor& each : tensors_) known.insert(each.tensor);
  for (const WeakTensor& weak : program.leaves) {
    const at::Tensor leaf = tensor_of(weak);
    if (leaf.defined() && leaf.layout() == at::kStrided && known.insert(leaf.unsafeGetTensorImpl()).second)
      flags_.emplace_back(leaf);
  }
}

Difference OutsideGuard::GuardedGradient::difference() const {
  if (weak.expired()) return {};
  const at::Tensor& now = leaf->grad();
  if (now.defined() != defined_before)
    return {"a gradient was set or taken away", RefusalKind::kGradientChanged};
  if (before && now.unsafeGetTensorImpl() != before)
    return {"a gradient was replaced", RefusalKind::kGradientChanged};
  return {};
}

Difference OutsideGuard::difference() const {
  // First, since a gradient that was taken away is also a tensor that was destroyed.
  for (const GuardedGradient& gradient : gradients_) {
    if (const Difference found = gradient.difference()) return found;
  }
  for (const GuardedTensor& guarded : tensors_) {
    if (const char* text = guarded.difference()) return text;
  }
  for (const LeafFlag& flag : flags_) {
    if (const char* text = flag.difference()) return text;
  }
  return {};
}

bool OutsideGuard::only_gradients_come_or_go() const {
  return std::none_of(flags_.begin(), flags_.end(), [](const LeafFlag& each) { return each.difference(); }) &&
         std::none_of(tensors_.begin(), tensors_.end(),
                      [](const GuardedTensor& each) { return each.difference(); }) &&
         std::all_of(gradients_.begin(), gradients_.end(),
                     [](const GuardedGradient& each) { return each.is_left_alone || !each.difference(); });
}

std::vector<WeakTensor> OutsideGuard::leaves_that_take_turns() const {
  std::vector<WeakTensor> leaves;
  bool any = false;
  for (const GuardedGradient& gradient : gradients_) {
    if (gradient.is_left_alone || gradient.weak.expired()) continue;
    leaves.push_back(gradient.weak);
    any |= gradient.leaf->grad().defined() != gradient.defined_before;
  }
  return any ? leaves : std::vector<WeakTensor>();
}

void OutsideGuard::finish_call() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].bumps > 0) {
      if (kept_.is_kept(tensors_[i].tensor)) continue;
      targets_[i] = tensors_[i].tensor->version_counter().current_version() + tensors_[i].bumps;
    }
  }
  // Several tensors may share one counter; the first of them takes it to the target.
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].bumps <= 0 || kept_.is_kept(tensors_[i].tensor)) continue;
    while (tensors_[i].tensor->version_counter().current_version() < targets_[i])
      tensors_[i].tensor->bump_version();
  }
  for (const GuardedGradient& gradient : gradients_) {
    if (gradient.stays || gradient.weak.expired()) continue;
    at::Tensor& now = gradient.leaf->mutable_grad();
    if (now.unsafeGetTensorImpl() != gradient.after.unsafeGetTensorImpl()) now = gradient.after;
  }
  kept_.finish_call();
}

}  // namespace overdrive::replay
