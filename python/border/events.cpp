// Of the events of Python's profile functions, those that a recording needs: a function makes thousands of
// calls, and a call back into Python for each costs more than the function. Python's functions are found in the
// process.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace overdrive::python {
namespace {

// Python's PyTrace_RETURN and PyTrace_C_CALL.
constexpr int kReturn = 3;
constexpr int kCCall = 4;

// `told` gets every return, and calls of C functions whose names begin with one of `names`, or of all.
struct Events {
  int (*told)(void* object, void* frame, int event, void* argument);
  const char* const* names;
  size_t count;
  int every_call;
};
thread_local const Events* watched = nullptr;

bool is_told(const Events& events, void* function) {
  using Name = const char* (*)(void*);
  static const auto name_of = reinterpret_cast<Name>(dlsym(RTLD_DEFAULT, "PyEval_GetFuncName"));
  if (events.every_call || !name_of) return true;
  const char* name = name_of(function);
  return std::any_of(events.names, events.names + events.count,
                     [name](const char* begin) { return std::strncmp(name, begin, std::strlen(begin)) == 0; });
}

}  // namespace
}  // namespace overdrive::python

// The events of this thread from here on, which live until others come; null: none.
extern "C" __attribute__((visibility("default"))) void overdrive_python_watch_events(
    const overdrive::python::Events* events) {
  overdrive::python::watched = events;
}

// For PyEval_SetProfile() and PyEval_SetTrace().
extern "C" __attribute__((visibility("default"))) int overdrive_python_event(void* object, void* frame,
                                                                             int event, void* argument) {
  using namespace overdrive::python;
  if (!watched || (event != kReturn && event != kCCall)) return 0;
  if (event == kCCall && !is_told(*watched, argument)) return 0;
  return watched->told(object, frame, event, argument);
}
