// Forward rules of our own, for operators that LibTorch differentiates forward not at all, wrongly, or at a
// high cost. The process registers them once and keeps them. A thread uses them inside an IncludedHere, which
// levels and vectorised Jacobians hold. Any thread. Leaves levels to levels/. Private.
#pragma once

namespace overdrive::forward_ad::rules {

// Note [Forward rules of our own]
// LibTorch has no entry for a forward rule: its formulas are compiled into its kernels. But it has a dispatch
// key for tests of its dispatcher (TESTING_ONLY_GenericWrapper), above all layers. A kernel there sees an
// operator before each layer does, with the layer's wrappers, and in the end with plain tensors. It hands the
// operator on when no input has a tangent. Some rules also act where reverse mode records an input. There are
// two kinds:
//
// - definitions: the operator in terms of others that have formulas, so it can be differentiated to any order,
// and by
//   reverse mode too. Most of these are backward operators, which forward over reverse mode meets.
// - for plain tensors, value and tangent with less work than LibTorch's formula takes.
//
// A thread of a pool has the key with its caller's dispatch keys. Rejected: replacing LibTorch's kernels for
// autograd, which the whole program would use; and DeferredInit, which LibTorch leaves to extensions but
// switches off in a layer.

// Sends the operators of this thread through the rules while it lives. Destroyed on the thread that made it.
class IncludedHere {
 public:
  IncludedHere();
  ~IncludedHere();
  IncludedHere(const IncludedHere&) = delete;
  IncludedHere& operator=(const IncludedHere&) = delete;

 private:
  bool were_included_;
};

bool are_included_here();

}  // namespace overdrive::forward_ad::rules
