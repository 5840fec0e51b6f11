#include "examples/data/data_files.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <fstream>

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
  constexpr uintmax_t kMostBytes = uintmax_t{256} << 20;
  const auto path = folder() / name;
  std::error_code unknown;
  TORCH_CHECK(std::filesystem::is_regular_file(path, unknown), "cannot read the data file ", path.string(),
              ".");
  const uintmax_t size = std::filesystem::file_size(path, unknown);
  TORCH_CHECK(!unknown && size <= kMostBytes, "the data file ", path.string(), " is larger than ", kMostBytes,
              " bytes.");
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  TORCH_CHECK(file && !bytes.empty(), "cannot read the data file ", path.string(), ".");
  return bytes;
}

}  // namespace overdrive::data
