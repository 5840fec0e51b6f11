#include "test/support/caught.h"

#include "test/support/pch.h"

#include <c10/util/Type.h>

#include <cxxabi.h>

namespace overdrive::test {

Caught message_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const c10::Error& error) {
    return {c10::demangle(typeid(error).name()), error.msg()};
  } catch (const std::exception& error) {
    return {c10::demangle(typeid(error).name()), error.what()};
  } catch (...) {
    return {c10::demangle(abi::__cxa_current_exception_type()->name()), ""};
  }
}

}  // namespace overdrive::test
