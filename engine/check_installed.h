// For tools that would see nothing on another engine: an error when they are made. Any thread.
#pragma once

#include "engine/install.h"

#include <c10/util/Exception.h>

namespace overdrive::engine {

// An error also where install() comes later: a tool that sees half a program is worse. `what` is the beginning
// of a sentence and ends with the engine's name.
inline void check_installed(const char* what) {
  TORCH_CHECK(installed(), what, ", which is not the default engine now (that is ", default_engine_owner(),
              "). Call overdrive::install() first.");
}

}  // namespace overdrive::engine
