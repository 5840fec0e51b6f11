// Forward rules of our own, for operators that LibTorch differentiates forward not at all,
// wrongly, or at more cost than need be. Kept by the process for good; in use on a thread
// from include_here() to restore_here(), which the levels call, and the vmap layers of
// Jacobians. Any thread. Leaves what a level is to the levels. Private.
#pragma once

namespace overdrive::forward_ad::rules {

// Note [Forward rules of our own]
// LibTorch has no door for a forward rule: its formulas are compiled into its kernels. But
// it has a dispatch key for tests of its dispatcher (TESTING_ONLY_GenericMode), above all
// others. A kernel there sees an operator before each layer does, with the layer's wrappers,
// and in the end with plain tensors. Where no input has a tangent it hands the operator on.
// Where one has (or, for some, where reverse mode records one: its formula then is the gradient of
// a tangent's), there are two kinds of rules:
//
// - definitions: the operator in terms of others, which have formulas themselves. So it can
//   be differentiated to any order, and by reverse mode too. Most of these are backward
//   operators, which forward over reverse mode meets.
// - for plain tensors, value and tangent with less work than LibTorch's formula takes.
//
// A thread of a pool has the key with its caller's dispatch keys.
//
// Rejected: replacing LibTorch's kernels for autograd, which the whole program would use;
// and DeferredInit, which LibTorch leaves to extensions, but switches off inside a layer.

// What include_here() found, for restore_here().
bool include_here();
void restore_here(bool were_included) noexcept;
bool are_included_here();

}  // namespace overdrive::forward_ad::rules
