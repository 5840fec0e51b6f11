// The loaded segments and the thread-local block of a shared object: finds types and variables of LibTorch
// without an exported name. No state; any thread.
#pragma once

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

}  // namespace overdrive::engine::host
