// A call of a captured function without Python, where it is like the last one. Owned by an object of Python,
// which the call is: a builtin function. Called under the GIL, which it gives away for the replay.
//
// Note [A quick call]: Python finds out what a call needs, and tells in Armed what it has gone by: values of
// the program, its own state, how many tensors there were and in which form they are returned. As long as all
// of this is as it was, the next call would go the same way, and goes it here. Where anything differs, nothing
// has happened, and Python does the call. Whether a recording replays is the library's decision as ever: where
// it runs the function, or throws, Python finishes the call.
#pragma once

#include "python/bindings/captures.h"
#include "python/bindings/values.h"

#include <cstdint>
#include <exception>
#include <vector>

namespace overdrive::python {

// Of Python, by address.
using Object = void*;

// Written by Python (python/overdrive/native/quick.py), which keeps what it names.
struct Armed {
  // How many calls may go this way; 0: it is not armed.
  int64_t is_armed;
  // Python's own state, and options.
  Look own;
  // The structure of modules and optimizers, and values of the program.
  const Look* structure;
  const Look* reads;
  // How many tensors the call is given; of an optimizer, how many gradients.
  int64_t inputs;
  // 0: nothing is returned; 1: one tensor; 2: a tuple of so many; 3: a list.
  int64_t form;
  int64_t outputs;
  // Of an optimizer: its parameters. Those that have a gradient come first.
  const Object* parameters;
  int64_t count;
  // Calls that went this way since it was armed.
  int64_t hits;
};

class QuickCall {
 public:
  // First: Python has its address.
  Armed armed{};

  // `acquire` and `release`: of the lock that a call holds, with the arguments of the first.
  QuickCall(CapturePtr capture, Object acquire, Object without_waiting, Object release);
  ~QuickCall();
  QuickCall(const QuickCall&) = delete;
  QuickCall& operator=(const QuickCall&) = delete;

  // All under the GIL. A new reference: the result; or that Python does the call; or that it goes on with
  // take_results(), and with the lock.
  Object call(const Object* arguments, int64_t count);
  // Of an optimizer: the gradients are its inputs.
  Object step();
  // Takes away the gradients of an optimizer's parameters, or leaves that to Python.
  Object zero_gradients();
  // Throws what the call has thrown.
  std::vector<at::Tensor> take_results();

 private:
  bool is_like_the_last() const;
  Object run();
  bool acquire() const;
  void release() const;
  const at::Tensor& parameter(int64_t index) const;

  const CapturePtr capture_;
  Object acquire_, without_waiting_, release_;
  // Of the call under way.
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> results_;
  std::exception_ptr error_;
};

}  // namespace overdrive::python
