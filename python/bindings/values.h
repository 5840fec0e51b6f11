// Values that a captured function read, as Python lays them out for C. Kept by Python; looked at under the GIL.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace overdrive::python {

// A function of CPython's limited API, or another one that every version has, found in the process; with a
// `library` one of that, if it is loaded.
template <typename Function>
Function find(const char* name, const char* library = nullptr) {
  void* const place = library ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : RTLD_DEFAULT;
  return library && !place ? nullptr : reinterpret_cast<Function>(dlsym(place, name));
}

// Objects of Python, by address, which live as long as this does. The kinds are in the source.
struct Value {
  int64_t kind;
  void* holder;
  void* key;
  void* expected;
};

// Several of them, where their owner has told it (python/overdrive/values/reads.py).
struct Look {
  Value* begin;
  int64_t count;
  int64_t is_whole;  // else Python has more to look at

  // Whether all are as they were.
  bool holds() const;
};

}  // namespace overdrive::python
