// For tools that would see nothing on another engine: an error when they are made. Any thread.
#pragma once

#include "engine/install.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <string_view>

namespace overdrive::engine {

// An error also where install() comes later: a tool that sees half a program is worse. With OVERDRIVE=0 the
// program asked for stock, as `compare` does, and its tools see nothing. `what` is the beginning of a sentence
// and ends with the engine's name.
inline void check_installed(const char* what) {
  const char* asked = std::getenv("OVERDRIVE");
  if (asked && std::string_view(asked) == "0") return;
  TORCH_CHECK(installed(), what, ", which is not the default engine now (that is ", default_engine_owner(),
              "). Call overdrive::install() first.");
}

}  // namespace overdrive::engine
