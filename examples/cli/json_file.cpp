#include "examples/cli/cli.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace overdrive::cli {

namespace {

[[noreturn]] void cannot_write(const std::string& path) {
  throw UsageError("cannot write \"" + path + "\": " + std::strerror(errno) + ".");
}

}  // namespace

JsonFile::JsonFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  temporary_ = path_ + "." + std::to_string(getpid()) + ".tmp";
  if (!std::ofstream(temporary_)) cannot_write(path_);
}

JsonFile::~JsonFile() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void JsonFile::write(const nlohmann::json& content) {
  if (path_.empty()) return;
  std::ofstream file(temporary_);
  file << content.dump(1) << '\n';
  file.close();
  if (!file || std::rename(temporary_.c_str(), path_.c_str()) != 0) cannot_write(path_);
  temporary_.clear();
}

}  // namespace overdrive::cli
