// Gradients that a replay makes anew, in memory that the program may still hold from an earlier call: g =
// p.grad before zero_grad(). Eager would make them elsewhere. Where somebody holds one, the replay's gradients
// go to fresh memory, and the held ones get their bytes back. Owned by an OutsideGuard; one thread at a time.
#pragma once

#include "replay/record/program.h"

#include <c10/core/Allocator.h>

namespace overdrive::replay {

// Notes who holds the gradients that a call has made, beside their leaves and the function's results: variables
// of the function's own, which see the values of each replay. Right after the call.
void note_holders(std::vector<LeafGradient>& gradients, const std::vector<at::Tensor>& results);

class KeptGradients {
 public:
  // The gradient of the leaf lies in memory that the program makes. The owner has one more reference to the
  // gradient, and one to its memory.
  void add(const LeafGradient& leaf, const at::Tensor& gradient);

  // Before a replay: looks who holds what, and takes the bytes of what is held.
  void begin_call();
  // Whether a replay is under way that leaves this gradient as it is.
  bool is_kept(const c10::TensorImpl* gradient) const;
  // After the replay: the leaves get fresh gradients with the values of the kept ones, which are as they were.
  void finish_call();
  // After a replay that was taken back.
  void put_back();

 private:
  struct Leaf {
    WeakTensor weak;
    c10::TensorImpl* raw;
  };
  // A tensor, the gradient of one leaf as a rule.
  struct Gradient {
    at::Tensor tensor;
    std::vector<Leaf> leaves;
    size_t others;

    bool is_held();
  };
  // A memory with the gradients in it, one as a rule.
  struct Made {
    c10::Storage storage;
    std::vector<Gradient> gradients;
    size_t others;
    // The bytes of the earlier call, while a replay runs.
    at::DataPtr kept = {};

    bool is_held();
  };

  std::vector<Made> made_;
  bool any_kept_ = false;
};

}  // namespace overdrive::replay
