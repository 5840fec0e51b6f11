// Pointers to nodes for every LibTorch version: the weak one that goes with base::NodePtr, and an owner of a
// node that somebody owns already.
#pragma once

#include "engine/base/torch_types.h"

#include <memory>
#include <type_traits>

namespace overdrive::hooks {

using WeakNodePtr = std::conditional_t<std::is_same_v<base::NodePtr, std::shared_ptr<base::Node>>,
                                       std::weak_ptr<base::Node>, c10::weak_intrusive_ptr<base::Node>>;

inline base::NodePtr owner_of(base::Node& node) { return node.getptr(); }

}  // namespace overdrive::hooks
