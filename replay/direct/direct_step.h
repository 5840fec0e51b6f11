// Operators of a replay without the dispatcher: LibTorch's own kernels, called with iterators, pointers and
// sizes that were resolved once. Functions of their arguments; a ReplayRun owns the steps. No step is trusted:
// the caller compares each with the boxed step, bit by bit, and keeps the boxed step where the bits differ.
#pragma once

#include "replay/bind/bound_program.h"
#include "replay/bind/step.h"

#include <optional>

namespace overdrive::replay {

// The input of a family: one operator with its tensors.
struct DirectCall {
  const BoundProgram& bound;
  const Operator& op;
  // The operator's name without namespace and overload, and without the underscore of an in-place form.
  std::string_view name;
  // The only result, the first of several, or the tensor that is changed.
  at::Tensor out;

  bool has_tensor(size_t argument) const { return argument < op.in.size() && op.in[argument].is_tensor(); }
  const at::Tensor& tensor(size_t argument) const { return bound.tensor(op.in[argument].values[0]); }
  const c10::IValue& constant(size_t argument) const { return op.in[argument].constant; }
  bool has_scalar(size_t argument) const {
    return argument < op.in.size() && op.in[argument].kind == Argument::Kind::kConstant &&
           constant(argument).isScalar();
  }
};

// A step for the operator, or nothing where it is not known.
std::optional<Step> direct_step(const BoundProgram& bound, const Operator& op);

// The families. Each looks at the name first.
// Products and sums of few elements.
std::optional<Step> direct_short_loop(DirectCall& call);
std::optional<Step> direct_elementwise(DirectCall& call);
std::optional<Step> direct_reduction(DirectCall& call);
std::optional<Step> direct_product(DirectCall& call);
std::optional<Step> direct_copy(DirectCall& call);
// Operators with two results.
std::optional<Step> direct_pooling(DirectCall& call);

}  // namespace overdrive::replay
