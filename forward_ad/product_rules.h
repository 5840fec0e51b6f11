// Forward rules for products of which one factor has no tangent. LibTorch's own formula
// puts a tensor of zeros in place of a tangent that is not there and multiplies by it:
// each matrix product of a network is computed three times where two would do. With
// these, on a thread inside a bare level, it is computed twice.
//
// The rules stand on the dispatch key that LibTorch keeps for extensions that follow a
// thread (`DeferredInit`), below the layers and above autograd. They are registered with
// the dispatcher when first wanted, and reached only where the key is included. Where
// another library has taken the key, there are none, and LibTorch's formulas are used.
// Any thread. Private.
#pragma once

namespace overdrive::forward_ad::product_rules {

// Switches the rules on for this thread; gives what restore_here() is to be told.
bool include_here();
void restore_here(bool were_included) noexcept;

bool are_included_here();

}  // namespace overdrive::forward_ad::product_rules
