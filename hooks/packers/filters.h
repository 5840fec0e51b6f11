// Hooks made of hooks: for some tensors only, or one after the other. filters.cpp has schedulable() as well.
// Any thread, as far as the parts are.
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

// `second` packs the tensors that `first` makes: compose(quantise(), spill_to_disk()). Parts that `second` does
// not want stay as `first` made them.
OVERDRIVE_API HooksPtr compose(HooksPtr first, HooksPtr second);

}  // namespace overdrive::hooks
