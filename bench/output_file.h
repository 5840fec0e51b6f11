// A file that appears under its name only when it is complete; until then an older file of that name stays as
// it is. Owned by whoever computes what goes in. Knows no format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace overdrive::bench {

class OutputFile {
 public:
  // Looks whether the file could be written, so that a wrong path costs no computation. Leaves nothing behind.
  // Throws c10::Error naming the path and the reason. An empty path is no file.
  explicit OutputFile(std::string path);

  // Writes beside the file, then renames. Throws c10::Error when that fails, a full disk included, and leaves
  // nothing half-written.
  void write(std::string_view content) const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// The same for a JSON document.
class JsonFile {
 public:
  explicit JsonFile(std::string path);
  void write(const nlohmann::json& content) const;

 private:
  const OutputFile file_;
};

}  // namespace overdrive::bench
