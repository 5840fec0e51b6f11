// Hooks made of hooks: for some tensors only, one after the other, or at another time. Any thread, as far as
// the parts are.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

#include <cstdint>
#include <vector>

namespace overdrive::hooks {

using Predicate = std::function<bool(const at::Tensor&, const SaveInfo&)>;

// `hooks` for the tensors of which the predicate holds.
OVERDRIVE_API HooksPtr where(Predicate predicate, HooksPtr hooks);
// For tensors of this many bytes and more.
OVERDRIVE_API HooksPtr min_bytes(int64_t bytes, HooksPtr hooks);
// For tensors of these types.
OVERDRIVE_API HooksPtr only_types(std::vector<at::ScalarType> types, HooksPtr hooks);

// One hook after the other, in the order of the data: in_turn({quantise(), spill_to_disk()}) packs the tensors
// that quantise() makes by spill_to_disk(). Parts that a later hook does not want stay as they are.
OVERDRIVE_API HooksPtr in_turn(std::vector<HooksPtr> hooks);
// The same of two.
OVERDRIVE_API HooksPtr compose(HooksPtr first, HooksPtr second);

// `hooks`, whose calls may be made early, late, on another thread or not at all, with the promise of Note [What
// a hook may do]: its pack() and unpack() depend on nothing but their arguments. Packing then waits until the
// tensor's last use is over, and unpacking begins before the node that wants the tensor. Inside compose() both
// parts need the mark, or the whole.
OVERDRIVE_API HooksPtr schedulable(HooksPtr hooks, Schedule schedule = {});

}  // namespace overdrive::hooks
