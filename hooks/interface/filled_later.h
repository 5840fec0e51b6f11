// Tensors that an operator saves first and fills afterwards, without raising their version: what a hook packs
// of one is not what the operator used. Asked when such a node unpacks; any thread.
//
// There is one in LibTorch: rrelu in training mode draws its noise into a tensor that its node has saved by
// then. Nothing at the save tells it from any other tensor without history, so that the only choice is between
// an error when the node asks and a wrong gradient. (Hooks of Python give the wrong gradient.)
#pragma once

#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::hooks {

// Whether what `node` saved without history, other than parameters, was filled after that.
bool fills_what_it_saved(const base::Node& node);
// The error for it.
[[noreturn]] void refuse_filled_later(const base::Node& node, const std::string& hooks);

}  // namespace overdrive::hooks
