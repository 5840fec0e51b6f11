#include "examples/cli/library_path.h"

#include "engine/c_api.h"
#include "examples/cli/cli.h"

#include <dlfcn.h>

#include <filesystem>

namespace overdrive::cli {

std::string library_path() {
  Dl_info about{};
  if (dladdr(reinterpret_cast<void*>(&overdrive_installed), &about) == 0) return "unknown";
  return about.dli_fname;
}

std::string preload_path() {
  const auto path = std::filesystem::absolute(library_path()).parent_path() / "liboverdrive_autoload.so";
  if (!std::filesystem::exists(path))
    throw UsageError("the preload library " + path.string() + " is not there.");
  return path.string();
}

}  // namespace overdrive::cli
