// What a step does with the gradients of leaves, told from recorded calls: which it found, which it left, which
// may come and go. Functions of their arguments, on the thread of the call. OutsideGuard keeps replays to it.
// A part leaves gradients to its graph, and only takes some away: part/part_gradients.h.
#pragma once

#include "replay/record/program.h"

#include <string>
#include <vector>

namespace overdrive::replay {

// Undefined where it is gone.
inline at::Tensor tensor_of(const WeakTensor& weak) { return at::Tensor(weak.lock()); }
// The leaf as gradients are taken of it: whether a call could give it one.
inline bool is_leaf_with_gradient(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf();
}
// Whether it may have one: a parameter that is frozen has it of a time when it was not, and zero_grad() takes
// it away.
inline bool may_have_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_leaf() && (tensor.is_floating_point() || tensor.is_complex());
}

// The leaves among a recording's tensors from outside, with their gradients as they are now: before a call.
std::vector<LeafGradient> gradients_now(const Program& program);
// The same leaves after the call, which returned the results. Returns a refusal, or nothing.
std::string note_gradients_after(std::vector<LeafGradient>& gradients, const Program& program,
                                 const std::vector<at::Tensor>& results);
// In a first recording, which does not compare gradients.
void note_gradients_left(Program& program);
// Whether two recordings treat the gradients alike; a sentence otherwise. Notes in the later one which
// gradients may come and go.
std::string gradient_difference(const std::vector<LeafGradient>& before, std::vector<LeafGradient>& now);
// The leaves whose gradients the later one does not leave alone, where the two found some in one call and not
// in the other; else none.
std::vector<WeakTensor> leaves_that_take_turns(const std::vector<LeafGradient>& before,
                                               const std::vector<LeafGradient>& now);

}  // namespace overdrive::replay
