#include "bench/output_file.h"
#include "examples/cli/cli.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace overdrive::cli {

JsonFile::JsonFile(std::string path) : file_(std::move(path)) {}

void JsonFile::write(const nlohmann::json& content) const {
  if (!file_.path().empty()) file_.write(content.dump(1) + "\n");
}

}  // namespace overdrive::cli
