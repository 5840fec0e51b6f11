#include "engine/python_entry/python_thread.h"

#include <dlfcn.h>

namespace overdrive::engine::python_entry {
namespace {

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Of Python's stable interface; the last under its name of 3.13 and the one before.
struct Python {
  int (*is_initialized)() = find<int (*)()>("Py_IsInitialized");
  int (*ensure)() = find<int (*)()>("PyGILState_Ensure");
  void (*release)(int) = find<void (*)(int)>("PyGILState_Release");
  void* (*save)() = find<void* (*)()>("PyEval_SaveThread");
  void (*restore)(void*) = find<void (*)(void*)>("PyEval_RestoreThread");
  int (*is_finalizing)() = find<int (*)()>("Py_IsFinalizing");

  Python() {
    if (is_finalizing == nullptr) is_finalizing = find<int (*)()>("_Py_IsFinalizing");
  }
  bool is_complete() const {
    return is_initialized != nullptr && ensure != nullptr && release != nullptr && save != nullptr &&
           restore != nullptr && is_finalizing != nullptr;
  }
  // A thread that asks for the GIL while Python ends is ended there and then.
  bool runs() const { return is_complete() && is_initialized() != 0 && is_finalizing() == 0; }
};

}  // namespace

PythonThread::PythonThread() {
  const Python python;
  if (!python.runs()) return;
  before_ = python.ensure();
  state_ = python.save();
}

PythonThread::~PythonThread() {
  const Python python;
  if (state_ == nullptr || !python.runs()) return;
  python.restore(state_);
  python.release(before_);
}

}  // namespace overdrive::engine::python_entry
