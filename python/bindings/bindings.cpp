#include "python/bindings/bindings.h"

#include "engine/base/c_error.h"
#include "engine/base/no_destructor.h"

#include <torch/library.h>

namespace overdrive::python {
namespace {

void register_classes() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    add_captures(made);
    add_calls(made);  // of captures
    add_engine(made);
    add_hooks(made);
    add_inspect(made);
    add_step_files(made);
    return made;
  }());
}

}  // namespace
}  // namespace overdrive::python

// The package calls this when it has loaded the library: a program without Python registers nothing. Returns 0
// on an error, and overdrive_last_error() tells why.
extern "C" __attribute__((visibility("default"))) int overdrive_python_bindings() {
  return overdrive::base::without_throwing(0, [] {
    overdrive::python::register_classes();
    return 1;
  });
}
