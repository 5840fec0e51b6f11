// Loads the library that it is given, which stands for a libtorch_python.so, and installs Overdrive. Prints why
// it could not, and who is the default engine then.
#include "engine/install.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  for (int i = 0; i < 2; ++i) {
    try {
      overdrive::engine::install();
    } catch (const c10::Error& error) {
      std::printf("%s\n", error.what_without_backtrace());
    }
  }
  std::printf("engine: %s\n", overdrive::engine::default_engine_owner().c_str());
}
