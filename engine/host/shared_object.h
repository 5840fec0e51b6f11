// The loaded segments and the thread-local block of a shared object: finds types and variables of LibTorch
// without an exported name, and tells by its vtable whether a node is LibTorch's own code. No state; any
// thread.
#pragma once

#include "engine/base/torch_types.h"

#include <cstdint>

namespace overdrive::engine::host {

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

struct SharedObject {
  const void* inside = nullptr;  // asked for: the object that contains this address
  Range all;                     // its loaded segments
  Range tls;                     // its thread-local block on the asking thread
};

SharedObject shared_object_of(const void* address);

inline const void* vtable_of(const void* object) { return *static_cast<const void* const*>(object); }

// An exported vtable as objects point to it, past the offset-to-top and the type information; or null.
const void* exported_vtable(const char* symbol);

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
