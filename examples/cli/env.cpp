// `overdrive env`: which library, which LibTorch, whose engine, which settings; and if Overdrive is off: why.
#include "bench/support/text.h"
#include "engine/engine.h"
#include "examples/cli/cli.h"
#include "examples/harness/app_comparison.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

using bench::fitted;
using bench::format;

// "" when install() works here, else what stands against it.
std::string why_install_fails() {
  try {
    ScopedInstall scope;
    return installed() ? "" : "install() left engine \"" + engine::default_engine_owner() + "\" in place";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

// "" when Overdrive is the default engine.
std::string why_off() {
  if (installed()) return "";
  const std::string failure = why_install_fails();
  if (!failure.empty()) return failure;
  const char* variable = std::getenv("OVERDRIVE");
  const std::string wanted = variable == nullptr || *variable == '\0' ? "1" : variable;
  if (wanted == "0") return "OVERDRIVE=0 keeps the preload library from installing it";
  if (wanted != "1") return "OVERDRIVE is \"" + wanted + "\", but must be one of 0|1";
  return "this process neither preloads liboverdrive_autoload.so nor has called overdrive::install(), "
         "which would work here";
}

nlohmann::json describe() {
  nlohmann::json variables = nlohmann::json::array();
  for (const engine::Variable& variable : engine::environment_variables()) {
    const char* value = std::getenv(variable.name);
    variables.push_back({{"name", variable.name},
                         {"value", value ? nlohmann::json(value) : nlohmann::json(nullptr)},
                         {"allowed", variable.allowed},
                         {"meaning", variable.meaning}});
  }
  return {{"library", harness::library_path()},
          {"torch_built_for", engine::built_for_torch()},
          {"torch_found", engine::running_torch()},
          {"default_engine", engine::default_engine_owner()},
          {"on", installed()},
          {"why_off", why_off()},
          {"variables", variables}};
}

std::string text_of_env(const nlohmann::json& about) {
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fitted(format("%-20s", what) + value);
  };
  line("library", about["library"]);
  line("LibTorch built for", about["torch_built_for"]);
  line("LibTorch found", about["torch_found"]);
  line("default engine", about["default_engine"]);
  line("Overdrive is", about["on"].get<bool>() ? "on" : "off: " + about["why_off"].get<std::string>());
  text += "\n";
  for (const auto& variable : about["variables"]) {
    const auto cell = [&](const char* name) {
      return variable[name].is_null() ? std::string("(not set)") : variable[name].get<std::string>();
    };
    text += fitted(format("%-24s%-12s ", cell("name").c_str(), cell("value").c_str()) + cell("allowed") + ": " +
                   cell("meaning"));
  }
  return text;
}

}  // namespace

void add_env(Program& program) {
  auto output = std::make_shared<Output>();
  output->add_to(*program.add(program.app, "env",
                              "Tell which library, LibTorch, engine and settings are in use.", "overdrive env",
                              [output] {
                                const JsonFile file(output->json);
                                const nlohmann::json about = describe();
                                output->print(text_of_env(about));
                                file.write(about);
                                return kFine;
                              }));
}

}  // namespace overdrive::cli
