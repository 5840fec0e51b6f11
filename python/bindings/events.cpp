// Of the events of Python's profile functions, those that a recording needs: a function makes thousands of
// calls, and a call back into Python for each costs more than the function. Python's functions are found in the
// process. The GIL guards all that is kept.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

namespace overdrive::python {
namespace {

// Python's PyTrace_RETURN and PyTrace_C_CALL.
constexpr int kReturn = 3;
constexpr int kCCall = 4;

// `told` gets every return, and calls of C functions that are not known to be harmless, but for code of which
// nothing is left to tell. `with_numbers`: also calls of those that are harmless unless they are given a number
// of the call. `number`: of the watcher, which no other one has.
struct Events {
  int (*told)(void* object, void* frame, int event, void* argument);
  int with_numbers;
  uint64_t number;
};
thread_local const Events* watched = nullptr;

// Code whose returns tell a watcher nothing more, with its number. The watcher holds the code as long as it has
// that number.
std::unordered_map<void*, uint64_t>& told_all() {
  static auto& codes = *new std::unordered_map<void*, uint64_t>;
  return codes;
}
// Of code that tells no watcher anything, returns and calls, and that lives as long as the process.
constexpr uint64_t kEveryWatcher = 0;

// The number that code has in told_all(), by its frame; the largest one: none.
uint64_t number_of(void* frame) {
  static const auto code_of = reinterpret_cast<void* (*)(void*)>(dlsym(RTLD_DEFAULT, "PyFrame_GetCode"));
  static const auto release = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "Py_DecRef"));
  if (!code_of || !release) return UINT64_MAX;
  void* code = code_of(frame);
  release(code);  // the frame has it
  const auto found = told_all().find(code);
  return found == told_all().end() ? UINT64_MAX : found->second;
}

// A C function, whatever object it is bound to: its code and its name. pybind11 gives all functions one code.
struct Function {
  void* code = nullptr;
  const char* name = nullptr;
  bool operator==(const Function&) const = default;
};
struct Hash {
  size_t operator()(const Function& function) const {
    return std::hash<void*>()(function.code) * 31 + std::hash<const void*>()(function.name);
  }
};

Function function_of(void* callable) {
  static const auto code_of =
      reinterpret_cast<void* (*)(void*)>(dlsym(RTLD_DEFAULT, "PyCFunction_GetFunction"));
  static const auto name_of =
      reinterpret_cast<const char* (*)(void*)>(dlsym(RTLD_DEFAULT, "PyEval_GetFuncName"));
  static const auto clear = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "PyErr_Clear"));
  if (!code_of || !name_of || !clear) return {};
  void* code = code_of(callable);
  if (!code) {  // an object of another class, and an error
    clear();
    return {};
  }
  return {code, name_of(callable)};
}

// Harmless functions, and whether they read numbers.
std::unordered_map<Function, bool, Hash>& known() {
  static auto& functions = *new std::unordered_map<Function, bool, Hash>;
  return functions;
}

bool is_told(const Events& events, void* callable) {
  const auto found = known().find(function_of(callable));
  return found == known().end() || (found->second && events.with_numbers);
}

}  // namespace
}  // namespace overdrive::python

// The events of this thread from here on, which live until others come; null: none.
extern "C" __attribute__((visibility("default"))) void overdrive_python_watch_events(
    const overdrive::python::Events* events) {
  overdrive::python::watched = events;
}

// Calls of this C function are told no more, or, where it reads numbers, beside numbers of the call alone.
extern "C" __attribute__((visibility("default"))) void overdrive_python_know(void* callable,
                                                                             int reads_numbers) {
  using namespace overdrive::python;
  const Function function = function_of(callable);
  if (function.code) known()[function] = reads_numbers != 0;
}

// Returns of this code are told to the watcher with the number no more; 0: to none, and its calls of C
// functions neither.
extern "C" __attribute__((visibility("default"))) void overdrive_python_told_all(void* code, uint64_t number) {
  overdrive::python::told_all()[code] = number;
}

// For PyEval_SetProfile().
extern "C" __attribute__((visibility("default"))) int overdrive_python_event(void* object, void* frame,
                                                                             int event, void* argument) {
  using namespace overdrive::python;
  if (!watched || (event != kReturn && event != kCCall)) return 0;
  const uint64_t number = number_of(frame);
  if (number == kEveryWatcher || (event == kReturn && number == watched->number)) return 0;
  if (event == kCCall && !is_told(*watched, argument)) return 0;
  return watched->told(object, frame, event, argument);
}
