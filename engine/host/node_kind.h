// Which nodes are LibTorch's own code, told by their vtable. Any thread.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/host/shared_object.h"

namespace overdrive::engine::host {

// The facts about a node's type that a plan needs.
enum class NodeKind {
  kHost,            // LibTorch's own code
  kAccumulateGrad,  // LibTorch's own; its hooks live in the tensor
  kForeign,         // a type from elsewhere, or one that wraps a node of any type
};
NodeKind kind_of(const base::Node& node);

// The shared object that holds LibTorch's nodes, with its thread-local block on this thread.
SharedObject libtorch_object();

}  // namespace overdrive::engine::host
