// The text of an error. Shared by the C functions: that of the last error on this thread, and the way from
// exceptions to it. Each thread has its own text.
#pragma once

#include "engine/base/no_destructor.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>

namespace overdrive::base {

// Without LibTorch's trace of C++.
inline const char* text_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const c10::Error*>(&error);
  return known ? known->what_without_backtrace() : error.what();
}

// A plain array: a string would have a destructor, and a caller's may run after it.
inline constinit thread_local char text_of_last_error[1024] = "";

inline void set_last_error(const char* text) {
  std::snprintf(text_of_last_error, sizeof text_of_last_error, "%s", text);
}
inline const char* last_error() { return text_of_last_error; }

// Runs f for a caller that knows no exceptions; on one, keeps its text and returns `failed`.
template <typename Result, typename F>
Result without_throwing(Result failed, F&& f) {
  try {
    set_last_error("");
    return f();
  } catch (const std::exception& error) {
    set_last_error(text_of(error));
  } catch (...) {
    if (thread_is_ending()) throw;
    set_last_error("an exception of an unknown type");
  }
  return failed;
}

}  // namespace overdrive::base
