// Tensors from outside that a replay uses, and the gradients of the leaves among them: whether they still are
// as they were at capture, and their version counters and .grad after a replay. Owned by a ReplayRun; one
// thread at a time.
#pragma once

#include "replay/bind/bound_program.h"
#include "replay/guard/kept_gradients.h"
#include "replay/guard/leaf_flags.h"

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>

namespace overdrive::replay {

// The hooks of a leaf (hook_signature.cpp): those on the tensor and those on the node that accumulates its
// gradient. Sees that hooks were added or taken away, and not what a hook does.
struct HookSignature {
  // Hooks of C++ stand in one list that only grows; an entry that was removed is empty.
  const void* list = nullptr;
  size_t listed = 0;
  size_t removed = 0;
  // All others by their addresses.
  uint64_t addresses = 0;

  static HookSignature of(const c10::TensorImpl& leaf);
  bool operator==(const HookSignature&) const = default;
};

class OutsideGuard {
 public:
  explicit OutsideGuard(const BoundProgram& bound);

  // Why the program does not fit what is there now. Looks only.
  Difference difference() const;
  // Whether nothing differs but gradients that the program leaves alone: some are there now and were not, or
  // the other way.
  bool only_gradients_come_or_go() const;
  // The leaves whose gradients the program does not leave alone, where some of these came or went; else none.
  std::vector<WeakTensor> leaves_that_take_turns() const;
  // Whether what differs may be as it was again: a gradient, or whether tensors require one.
  bool may_fit_again() const;
  // Before a replay: gradients of an earlier call that somebody holds are kept.
  void begin_call() { kept_.begin_call(); }
  // After a replay that was taken back.
  void put_back() { kept_.put_back(); }
  // Leaves version counters and gradients as an eager call does.
  void finish_call();
  // Why the tensors cannot be guarded; empty when they can.
  const std::string& refusal() const { return refusal_; }
  // Parameters and the like: leaves that require a gradient, by memory.
  const std::vector<int>& leaf_memories() const { return leaf_memories_; }

 private:
  struct GuardedTensor {
    WeakTensor weak;
    c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    const void* address;
    c10::DimVector sizes;
    c10::DimVector strides;
    int64_t offset;
    at::ScalarType type;
    c10::DispatchKeySet keys;
    bool requires_grad;
    HookSignature hooks;
    int64_t bumps;

    const char* difference() const;
    bool may_fit_again() const;
  };
  struct GuardedGradient {
    // It may be a leaf that no operator uses, and die.
    WeakTensor weak;
    c10::TensorImpl* leaf;
    bool defined_before;
    // The gradient that has to be there before the call, where the program uses its memory.
    c10::TensorImpl* before = nullptr;
    // What the program puts there; it leaves a gradient that stays where it is, and holds no reference to it.
    at::Tensor after = {};
    bool stays = false;
    bool is_left_alone = false;

    Difference difference() const;
  };
  void add(const WeakTensor& tensor, int64_t bumps);
  void watch_gradients(const Program& program);
  void watch_flags(const Program& program);

  std::string refusal_;
  std::vector<GuardedTensor> tensors_;
  std::vector<GuardedGradient> gradients_;
  // Of tensors that no operator uses.
  std::vector<LeafFlag> flags_;
  KeptGradients kept_;
  std::vector<int> leaf_memories_;
  std::vector<int64_t> targets_;
};

}  // namespace overdrive::replay
