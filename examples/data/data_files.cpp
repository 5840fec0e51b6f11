#include "examples/data/data_files.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace overdrive::data {

namespace {

std::string& chosen_folder() {
  static std::string folder;
  return folder;
}

std::filesystem::path folder() {
  if (!chosen_folder().empty()) return chosen_folder();
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto installed = program.parent_path().parent_path() / "share" / "overdrive" / "data";
  return std::filesystem::exists(installed, ignored) ? installed : std::filesystem::path(OVERDRIVE_DATA_FOLDER);
}

}  // namespace

void set_folder(const std::string& folder) { chosen_folder() = folder; }

std::string read_file(const std::string& name) {
  const auto path = folder() / name;
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  TORCH_CHECK(file && !bytes.view().empty(), "cannot read the data file ", path.string(), ".");
  return bytes.str();
}

}  // namespace overdrive::data
