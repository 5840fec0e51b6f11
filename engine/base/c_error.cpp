#include "engine/base/c_error.h"

#include <cstdio>

namespace overdrive::base {
namespace {

// A plain array: a string would have a destructor, and a caller's may run after it.
constinit thread_local char text_of_last_error[1024] = "";

}  // namespace

void set_last_error(const char* text) {
  std::snprintf(text_of_last_error, sizeof text_of_last_error, "%s", text);
}

const char* last_error() { return text_of_last_error; }

}  // namespace overdrive::base
