// Where the libraries of this program are. Pure functions of the process.
#pragma once

#include <string>

namespace overdrive::cli {

// The liboverdrive.so that this process uses.
std::string library_path();
// The preload library beside it. Throws UsageError when it is not there.
std::string preload_path();

}  // namespace overdrive::cli
