#include "replay/c_api.h"

#include <dlfcn.h>

#include <cstdint>

// Python's own functions, found in the process: the library is linked to no Python. Nothing is kept, and
// borrowed references are compared only.

namespace {

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

struct Python {
  void* (*entry)(void*, void*) = find<void* (*)(void*, void*)>("PyDict_GetItem");
  int (*next)(void*, intptr_t*, void**,
              void**) = find<int (*)(void*, intptr_t*, void**, void**)>("PyDict_Next");
  intptr_t (*dict_size)(void*) = find<intptr_t (*)(void*)>("PyDict_Size");
  intptr_t (*size)(void*) = find<intptr_t (*)(void*)>("PyObject_Size");
  intptr_t (*list_size)(void*) = find<intptr_t (*)(void*)>("PyList_Size");
  void* (*type)(void*) = find<void* (*)(void*)>("PyObject_Type");
  void* (*item)(void*, intptr_t) = find<void* (*)(void*, intptr_t)>("PyList_GetItem");
  void* (*content)(void*) = find<void* (*)(void*)>("PyCell_Get");
  void (*release)(void*) = find<void (*)(void*)>("Py_DecRef");
};

bool has_values(const Python& python, void* dict, const void* const* values, intptr_t count) {
  if (python.dict_size(dict) != count) return false;
  intptr_t position = 0;
  void* key = nullptr;
  void* value = nullptr;
  for (intptr_t i = 0; i < count; ++i) {
    if (!python.next(dict, &position, &key, &value) || value != values[i]) return false;
  }
  return true;
}

bool holds(const Python& python, const overdrive_capture_value& value) {
  const auto number = reinterpret_cast<intptr_t>(value.key);
  switch (value.kind) {
    case OVERDRIVE_CAPTURE_ENTRY:
      return python.entry(value.holder, value.key) == value.expected;
    case OVERDRIVE_CAPTURE_VALUES:
      return has_values(python, value.holder, static_cast<const void* const*>(value.expected), number);
    case OVERDRIVE_CAPTURE_SIZE:
      return python.size(value.holder) == number;
    case OVERDRIVE_CAPTURE_ITEM:
      return number < python.list_size(value.holder) && python.item(value.holder, number) == value.expected;
    case OVERDRIVE_CAPTURE_CELL: {
      void* content = python.content(value.holder);
      // The cell still holds it.
      if (content) python.release(content);
      return content == value.expected;
    }
    case OVERDRIVE_CAPTURE_KIND: {
      void* type = python.type(value.holder);
      python.release(type);
      return type == value.expected;
    }
    default:
      return false;
  }
}

}  // namespace

extern "C" size_t overdrive_capture_first_changed(const overdrive_capture_value* values, size_t begin,
                                                  size_t end) {
  static const Python python;
  while (begin < end && holds(python, values[begin])) ++begin;
  return begin;
}
