// Backwards that C++ starts in a process of Python's, for test/python/. A tensor comes as its `_cdata`. To be
// called by ctypes.PyDLL: with the GIL, and an error that is left with Python is raised.
#include "engine/python_entry/python_thread.h"

#include <ATen/ATen.h>

#include <exception>
#include <optional>
#include <string>
#include <thread>

extern "C" {
void* PyEval_SaveThread();
void PyEval_RestoreThread(void* state);
}

namespace {

thread_local std::string error;

// The text of the error, or "".
const char* backward(void* tensor) {
  error.clear();
  try {
    at::Tensor(c10::intrusive_ptr<at::TensorImpl>::reclaim_copy(static_cast<at::TensorImpl*>(tensor)))
        .backward();
  } catch (const std::exception& caught) {
    error = caught.what();
  }
  return error.c_str();
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const char* backward_holding_the_gil(void* tensor) { return backward(tensor); }

// Threads that nobody joins run backwards until the process is gone.
EXPORTED void train_on_detached_threads(int threads) {
  for (int i = 0; i < threads; ++i) {
    std::thread([] {
      at::Tensor x = at::ones({8}).requires_grad_();
      for (;;) x.exp().tanh().sum().backward();
    }).detach();
  }
}

// Calls a function of Python's twice on a new thread, which keeps one state of Python's meanwhile or does not.
EXPORTED void call_twice_on_a_thread(void (*callback)(), int keeps_state) {
  void* const state = PyEval_SaveThread();
  std::thread([&] {
    std::optional<overdrive::engine::python_entry::PythonThread> python;
    if (keeps_state != 0) python.emplace();
    callback();
    callback();
  }).join();
  PyEval_RestoreThread(state);
}

EXPORTED const char* backward_without_the_gil(void* tensor) {
  void* const state = PyEval_SaveThread();
  const char* const text = backward(tensor);
  PyEval_RestoreThread(state);
  return text;
}
