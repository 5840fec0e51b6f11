// The message of the c10::Error that an action ends with; "(no error)" when it ends well. Any other error
// passes.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace overdrive::test {

template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.msg();
  }
  return "(no error)";
}

}  // namespace overdrive::test
