// Which nodes are LibTorch's own code, told by their vtable. Any thread.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/host/shared_object.h"

namespace overdrive::engine::host {

// The kind of a node's type, for plans.
enum class NodeKind {
  kHost,            // LibTorch's own code
  kAccumulateGrad,  // LibTorch's own; its hooks live in the tensor
  kForeign,         // a type of another library, or a wrapper of such a node
};
NodeKind kind_of(const base::Node& node);

// The shared object that holds LibTorch's nodes, with its thread-local block on this thread.
SharedObject libtorch_object();

}  // namespace overdrive::engine::host
