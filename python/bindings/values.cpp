// Compares values that a captured function of Python read with what there is now: 10 ns a value, under the GIL,
// which classes of the bindings release. Python's own functions are found in the process: the library is linked
// to no Python. Nothing is kept but versions of dicts, and borrowed references are compared only.
#include "python/bindings/values.h"

namespace overdrive::python {
namespace {

enum Kind : int64_t {
  kEntry = 0,   // `holder`, a dict, has `expected` under `key`; null: it has nothing there
  kValues = 1,  // the dict's values, in its order, are the `key` objects whose addresses begin at `expected`
  kSize = 2,    // the list or dict has `key` items
  kItem = 3,    // item `key` of the list
  kCell = 4,    // the content of the cell
  kKind = 5,    // the object's class
  kKeys = 6,    // as kValues, the dict's keys
  kCode = 7,    // what the function has
  kDefaults = 8,
  kKeywordDefaults = 9,
  kVersion = 10,    // the next `key` values look at this dict, and hold as long as its version is `expected`
  kDict = 11,       // the dict of the object's attributes
  kAttribute = 12,  // attribute `key` of the object, which may be computed
  kAnswer = 13      // what the function `holder` returns: of all that only Python can compare
};
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
  void* (*code)(void*) = find<void* (*)(void*)>("PyFunction_GetCode");
  void* (*defaults)(void*) = find<void* (*)(void*)>("PyFunction_GetDefaults");
  void* (*dict)(void*, void*) = find<void* (*)(void*, void*)>("PyObject_GenericGetDict");
  void* (*attribute)(void*, void*) = find<void* (*)(void*, void*)>("PyObject_GetAttr");
  void* (*call)(void*, void*) = find<void* (*)(void*, void*)>("PyObject_CallObject");
  void (*clear_error)() = find<void (*)()>("PyErr_Clear");
  void* (*keyword_defaults)(void*) = find<void* (*)(void*)>("PyFunction_GetKwDefaults");
};

// The dict's own objects, in its order: its keys, or its values.
bool has_objects(const Python& python, const Value& value) {
  const auto count = reinterpret_cast<intptr_t>(value.key);
  const auto* objects = static_cast<const void* const*>(value.expected);
  if (python.dict_size(value.holder) != count) return false;
  intptr_t position = 0;
  void* found[2] = {nullptr, nullptr};
  for (intptr_t i = 0; i < count; ++i) {
    if (!python.next(value.holder, &position, &found[0], &found[1])) return false;
    if (found[value.kind == kKeys ? 0 : 1] != objects[i]) return false;
  }
  return true;
}

// `found`: an own reference, or null where there was an error, which Python meets once more. What is expected
// is kept.
bool is_expected(const Python& python, const Value& value, void* found) {
  found ? python.release(found) : python.clear_error();
  return found == value.expected;
}

bool holds(const Python& python, const Value& value) {
  const auto number = reinterpret_cast<intptr_t>(value.key);
  switch (value.kind) {
    case kEntry:
      return python.entry(value.holder, value.key) == value.expected;
    case kValues:
    case kKeys:
      return has_objects(python, value);
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
    case kDict: {
      void* dict = python.dict(value.holder, nullptr);
      // The object still holds it.
      python.release(dict);
      return dict == value.expected;
    }
    case kAttribute:
      return is_expected(python, value, python.attribute(value.holder, value.key));
    case kAnswer:
      return is_expected(python, value, python.call(value.holder, nullptr));
    case kCode:
      return python.code(value.holder) == value.expected;
    case kDefaults:
      return python.defaults(value.holder) == value.expected;
    case kKeywordDefaults:
      return python.keyword_defaults(value.holder) == value.expected;
    default:
      return false;
  }
}

// Of a dict of CPython up to 3.12, behind its head and its size: another number after every change, which no
// other dict and no earlier state has. The caller has seen that it is there.
void* version_of(const void* dict) { return static_cast<void* const*>(dict)[3]; }

size_t first_of(const Python& python, const Value* values, size_t begin, size_t end) {
  while (begin < end && holds(python, values[begin])) ++begin;
  return begin;
}

size_t first_changed(Value* values, size_t begin, size_t end) {
  static const Python python;
  while (begin < end) {
    Value& value = values[begin];
    if (value.kind != kVersion) {
      if (!holds(python, value)) return begin;
      ++begin;
      continue;
    }
    const size_t after = begin + 1 + reinterpret_cast<size_t>(value.key);
    void* version = version_of(value.holder);
    if (version != value.expected) {
      const size_t changed = first_of(python, values, begin + 1, after);
      if (changed < after) return changed;
      value.expected = version;
    }
    begin = after;
  }
  return end;
}

}  // namespace

bool Look::holds() const {
  const auto end = static_cast<size_t>(count);
  return is_whole && first_changed(begin, 0, end) == end;
}

}  // namespace overdrive::python

// The first of these, from `begin` on, that is another object now; `end`: all are as they were, and the
// versions of their dicts are noted. The caller holds the GIL.
extern "C" __attribute__((visibility("default"))) size_t overdrive_python_first_changed(
    overdrive::python::Value* values, size_t begin, size_t end) {
  return overdrive::python::first_changed(values, begin, end);
}
