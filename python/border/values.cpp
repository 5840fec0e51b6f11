// Compares values that a captured function of Python read with what there is now: 10 ns a value, under the GIL,
// which the border's classes release. Python's own functions are found in the process: the library is linked to
// no Python. Nothing is kept, and borrowed references are compared only.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace overdrive::python {
namespace {

enum Kind : int64_t {
  kEntry = 0,  // `holder`, a dict, has `expected` under `key`; null: it has nothing there
  kValues =
      1,  // the dict has, in its order, the `key` objects whose addresses begin at `expected`, and no others
  kSize = 2,  // the list or dict has `key` items
  kItem = 3,  // item `key` of the list
  kCell = 4,  // the content of the cell
  kKind = 5   // the object's class
};
// Objects of Python, by address, which live as long as this does.
struct Value {
  int64_t kind;
  void* holder;
  void* key;
  void* expected;
};

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

bool holds(const Python& python, const Value& value) {
  const auto number = reinterpret_cast<intptr_t>(value.key);
  switch (value.kind) {
    case kEntry:
      return python.entry(value.holder, value.key) == value.expected;
    case kValues:
      return has_values(python, value.holder, static_cast<const void* const*>(value.expected), number);
    case kSize:
      return python.size(value.holder) == number;
    case kItem:
      return number < python.list_size(value.holder) && python.item(value.holder, number) == value.expected;
    case kCell: {
      void* content = python.content(value.holder);
      // The cell still holds it.
      if (content) python.release(content);
      return content == value.expected;
    }
    case kKind: {
      void* type = python.type(value.holder);
      python.release(type);
      return type == value.expected;
    }
    default:
      return false;
  }
}

}  // namespace
}  // namespace overdrive::python

// The first of these, from `begin` on, that is another object now; `end`: all are as they were. The caller
// holds the GIL.
extern "C" __attribute__((visibility("default"))) size_t overdrive_python_first_changed(
    const overdrive::python::Value* values, size_t begin, size_t end) {
  static const overdrive::python::Python python;
  while (begin < end && holds(python, values[begin])) ++begin;
  return begin;
}
