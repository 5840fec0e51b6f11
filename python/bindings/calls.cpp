#include "python/bindings/calls.h"

#include "replay/part/part_function.h"
#include "replay/record/recorder.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace overdrive::python {

namespace {

// Objects that Python hands over once.
enum Known : int { kNone = 0, kNotTaken = 1, kOpen = 2 };
struct OfTheProcess {
  Object tensor_class = nullptr;
  // What a call returns: nothing; that Python does the call; that Python finishes it.
  Object answers[3] = {};
  // How an object has its attributes.
  int64_t attributes = 0;
};
OfTheProcess of_the_process;

// A watcher sees the code that runs on this thread. It shall see that of the function.
thread_local int64_t watchers = 0;

struct Method {  // PyMethodDef
  const char* name;
  void* function;
  int flags;
  const char* text;
};
constexpr const char* kQuick = "overdrive.quick";

struct Python {
  void (*keep)(Object) = find<void (*)(Object)>("Py_IncRef");
  void (*release)(Object) = find<void (*)(Object)>("Py_DecRef");
  Object (*tuple)(intptr_t) = find<Object (*)(intptr_t)>("PyTuple_New");
  int (*set_in_tuple)(Object, intptr_t, Object) = find<int (*)(Object, intptr_t, Object)>("PyTuple_SetItem");
  Object (*list)(intptr_t) = find<Object (*)(intptr_t)>("PyList_New");
  int (*set_in_list)(Object, intptr_t, Object) = find<int (*)(Object, intptr_t, Object)>("PyList_SetItem");
  Object (*capsule)(void*, const char*,
                    void (*)(Object)) = find<Object (*)(void*, const char*, void (*)(Object))>("PyCapsule_New");
  void* (*in_capsule)(Object, const char*) = find<void* (*)(Object, const char*)>("PyCapsule_GetPointer");
  Object (*function)(Method*, Object, Object) = find<Object (*)(Method*, Object, Object)>("PyCFunction_NewEx");
  void* (*give_gil)() = find<void* (*)()>("PyEval_SaveThread");
  void (*take_gil)(void*) = find<void (*)(void*)>("PyEval_RestoreThread");
  Object (*call)(Object, Object) = find<Object (*)(Object, Object)>("PyObject_CallObject");
  int (*is_true)(Object) = find<int (*)(Object)>("PyObject_IsTrue");
  intptr_t (*dict_size)(Object) = find<intptr_t (*)(Object)>("PyDict_Size");
  Object* (*dict_of)(Object) = find<Object* (*)(Object)>("_PyObject_GetDictPtr");
  Object (*tensor)(const at::TensorBase&) =
      find<Object (*)(const at::TensorBase&)>("_Z16THPVariable_WrapRKN2at10TensorBaseE", "libtorch_python.so");

  bool is_whole() const {
    return keep && release && tuple && set_in_tuple && list && set_in_list && capsule && in_capsule &&
           function && give_gil && take_gil && call && is_true && dict_size && dict_of && tensor;
  }
};
const Python& python() {
  static const Python found;
  return found;
}

// The head of an object, and what PyTorch's tensors have behind it. Python has looked whether it is so.
Object class_of(Object object) { return static_cast<Object*>(object)[1]; }
const at::Tensor& tensor_in(Object object) { return reinterpret_cast<const at::Tensor*>(object)[2]; }

// How CPython keeps attributes of an object that has had no dict yet.
enum Attributes : int64_t { kInDict = 1, kInValues = 2, kInValuesOrDict = 3 };

// Whether a tensor has attributes of its own. No dict is made for the answer, as `__dict__` makes one.
bool has_attributes(Object object, int64_t attributes) {
  auto* const fields = static_cast<Object*>(object);
  const auto is_empty = [](Object values) { return static_cast<const uint8_t*>(values)[-2] == 0; };
  const auto has_in_dict = [](Object dict) { return dict && python().dict_size(dict) != 0; };
  switch (attributes) {
    case kInDict: {
      const Object* const dict = python().dict_of(object);
      return dict && has_in_dict(*dict);
    }
    case kInValues:  // 3.11
      return fields[-4] ? !is_empty(fields[-4]) : has_in_dict(fields[-3]);
    case kInValuesOrDict: {  // 3.12
      const auto either = reinterpret_cast<uintptr_t>(fields[-3]);
      return (either & 1) != 0 ? !is_empty(reinterpret_cast<Object>(either + 1)) : has_in_dict(fields[-3]);
    }
    default:
      return true;
  }
}

// A plain tensor about which nothing is known but what LibTorch knows.
bool is_plain(Object object) {
  return class_of(object) == of_the_process.tensor_class && !has_attributes(object, of_the_process.attributes);
}

bool is_plain(const at::Tensor& tensor) {
  Object const wrapper = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  return !wrapper || is_plain(wrapper);
}

// As looks_at_modes() of python/overdrive/native/modes.py, and stricter: any mode of functions is one.
bool is_in_a_mode() {
  return c10::impl::TorchDispatchModeTLS::stack_len() > 0 ||
         at::impl::PythonTorchFunctionTLS::stack_len() > 0 || torch::jit::tracer::isTracing() ||
         at::functorch::maybeCurrentDynamicLayer().has_value();
}

class WithoutGil {
 public:
  WithoutGil() : state_(python().give_gil()) {}
  ~WithoutGil() { python().take_gil(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* const state_;
};

Object known(Known answer) {
  Object const found = of_the_process.answers[answer];
  python().keep(found);
  return found;
}

Object as_tuple_or_list(const std::vector<at::Tensor>& tensors, bool is_tuple) {
  const auto count = static_cast<intptr_t>(tensors.size());
  Object const made = is_tuple ? python().tuple(count) : python().list(count);
  for (intptr_t i = 0; made && i < count; ++i) {
    Object const tensor = python().tensor(tensors[static_cast<size_t>(i)]);
    if (!tensor || (is_tuple ? python().set_in_tuple : python().set_in_list)(made, i, tensor) != 0) {
      python().release(made);
      return nullptr;
    }
  }
  return made;
}

Object in_form(const std::vector<at::Tensor>& tensors, int64_t form) {
  if (form == 1) return python().tensor(tensors[0]);
  if (form > 1) return as_tuple_or_list(tensors, form == 2);
  return known(kNone);
}

}  // namespace

QuickCall::QuickCall(CapturePtr capture, Object acquire, Object without_waiting, Object release)
    : capture_(std::move(capture)), acquire_(acquire), without_waiting_(without_waiting), release_(release) {
  for (Object const kept : {acquire_, without_waiting_, release_}) python().keep(kept);
}

QuickCall::~QuickCall() {
  for (Object const kept : {acquire_, without_waiting_, release_}) python().release(kept);
}

// Of CPython's own lock, whose functions do not fail.
bool QuickCall::acquire() const {
  Object const answer = python().call(acquire_, without_waiting_);
  const bool is_taken = python().is_true(answer) == 1;
  python().release(answer);
  return is_taken;
}

void QuickCall::release() const { python().release(python().call(release_, nullptr)); }

bool QuickCall::is_like_the_last() const {
  return armed.is_armed && watchers == 0 && !replay::PartFunction::is_running_again() && !is_in_a_mode() &&
         armed.own.holds() && armed.structure->holds() && armed.reads->holds();
}

namespace {

// Which of the arguments are one tensor is more than their number.
bool are_plain(const Object* arguments, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!is_plain(arguments[i]) || std::find(arguments, arguments + i, arguments[i]) != arguments + i)
      return false;
  }
  return true;
}

}  // namespace

Object QuickCall::call(const Object* arguments, int64_t count) {
  if (!armed.is_armed || count != armed.inputs || armed.parameters || !are_plain(arguments, count) ||
      !acquire())
    return known(kNotTaken);
  if (!is_like_the_last()) {
    release();
    return known(kNotTaken);
  }
  for (int64_t i = 0; i < count; ++i) inputs_.push_back(tensor_in(arguments[i]));
  return run();
}

// The structure that holds has the parameters.
const at::Tensor& QuickCall::parameter(int64_t index) const { return tensor_in(armed.parameters[index]); }

Object QuickCall::step() {
  if (!armed.is_armed || !armed.parameters || !acquire()) return known(kNotTaken);
  bool is_alike = is_like_the_last();
  for (int64_t i = 0; is_alike && i < armed.count; ++i) {
    const at::Tensor& gradient = parameter(i).grad();
    is_alike = gradient.defined() == (i < armed.inputs);
    if (!is_alike || !gradient.defined()) continue;
    is_alike = gradient.layout() == at::kStrided && is_plain(gradient);
    inputs_.push_back(gradient);
  }
  if (is_alike) return run();
  inputs_.clear();
  release();
  return known(kNotTaken);
}

// With the lock. Where tensors end, code of Python may run, so that the call is over before.
Object QuickCall::run() {
  error_ = nullptr;
  try {
    const WithoutGil scope;
    results_ = (*capture_)->step.call(inputs_);
  } catch (...) {
    error_ = std::current_exception();
  }
  const std::vector<at::Tensor> inputs = std::exchange(inputs_, {});
  if (error_ || !armed.is_armed || static_cast<int64_t>(results_.size()) != armed.outputs || !armed.own.holds())
    return known(kOpen);
  ++armed.hits;
  --armed.is_armed;
  const std::vector<at::Tensor> results = std::exchange(results_, {});
  Object const result = in_form(results, armed.form);
  release();
  return result;
}

Object QuickCall::zero_gradients() {
  if (!armed.parameters || !is_like_the_last() || replay::Recorder::active() ||
      at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE))
    return known(kNotTaken);
  // A gradient that ends may be seen by the program, which may change anything.
  for (int64_t i = 0; armed.is_armed && i < armed.count; ++i) {
    const at::Tensor& each = parameter(i);
    if (each.grad().defined()) each.mutable_grad().reset();
  }
  return known(armed.is_armed ? kNone : kNotTaken);
}

std::vector<at::Tensor> QuickCall::take_results() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::exchange(results_, {});
}

namespace {

QuickCall& of(Object capsule) { return *static_cast<QuickCall*>(python().in_capsule(capsule, kQuick)); }

Object call_it(Object capsule, const Object* arguments, intptr_t count) {
  return of(capsule).call(arguments, count);
}
Object step_it(Object capsule, Object) { return of(capsule).step(); }
Object zero_it(Object capsule, Object) { return of(capsule).zero_gradients(); }

constexpr int kFastCall = 0x80, kNoArguments = 0x4;  // METH_FASTCALL and METH_NOARGS
Method methods[] = {
    {"call", reinterpret_cast<void*>(&call_it), kFastCall, nullptr},
    {"step", reinterpret_cast<void*>(&step_it), kNoArguments, nullptr},
    {"zero_grad", reinterpret_cast<void*>(&zero_it), kNoArguments, nullptr},
};

struct QuickCalls : torch::CustomClassHolder {};

}  // namespace

void add_calls(torch::Library& library) {
  library
      .class_<QuickCalls>("QuickCalls")
      // For overdrive_python_quick(), which takes it.
      .def_static("of",
                  [](const CapturePtr& capture) {
                    return reinterpret_cast<int64_t>(
                        new CapturePtr(capture));  // NOLINT(cppcoreguidelines-owning-memory)
                  })
      .def_static("take_results", [](int64_t quick) { return at_address<QuickCall>(quick)->take_results(); });
}

}  // namespace overdrive::python

// All of them under the GIL.
#define OVERDRIVE_OF_PYTHON extern "C" __attribute__((visibility("default")))
using overdrive::python::Object;

// A watcher begins on this thread (1), or ends (-1).
OVERDRIVE_OF_PYTHON void overdrive_python_watch(int count) { overdrive::python::watchers += count; }

// Whether the object has attributes, where objects keep them so.
OVERDRIVE_OF_PYTHON int overdrive_python_has_attributes(Object object, int64_t attributes) {
  return overdrive::python::has_attributes(object, attributes) ? 1 : 0;
}

// The address of a tensor's implementation.
OVERDRIVE_OF_PYTHON const void* overdrive_python_tensor_in(Object tensor) {
  return overdrive::python::tensor_in(tensor).unsafeGetTensorImpl();
}

// Objects that live as long as the process. 0: this Python has not all functions that are needed.
OVERDRIVE_OF_PYTHON int overdrive_python_quick_begin(Object tensor_class, Object none, Object not_taken,
                                                     Object open, int64_t attributes) {
  using namespace overdrive::python;
  of_the_process = {tensor_class, {none, not_taken, open}, attributes};
  return python().is_whole() ? 1 : 0;
}

// A capsule with a QuickCall of `capture`, which is QuickCalls.of()'s.
OVERDRIVE_OF_PYTHON Object overdrive_python_quick(int64_t capture, Object acquire, Object without_waiting,
                                                  Object release) {
  using namespace overdrive::python;
  const std::unique_ptr<CapturePtr> owner(at_address<CapturePtr>(capture));
  auto* const made = new QuickCall(std::move(*owner), acquire, without_waiting, release);
  return python().capsule(made, kQuick, [](Object capsule) { delete &of(capsule); });
}

// A function of it: of calls, of step() or of zero_grad().
OVERDRIVE_OF_PYTHON Object overdrive_python_quick_function(Object quick, int which) {
  using namespace overdrive::python;
  return python().function(&methods[which], quick, nullptr);
}

// Where its Armed is, at its beginning.
OVERDRIVE_OF_PYTHON void* overdrive_python_quick_address(Object quick) { return &overdrive::python::of(quick); }
