// `overdrive env`: which library, which LibTorch, whose engine, which settings; and if Overdrive is off: why.
#include "engine/engine.h"
#include "examples/cli/cli.h"
#include "examples/cli/library_path.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

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
  return {{"library", library_path()},
          {"torch_built_for", engine::built_for_torch()},
          {"torch_found", engine::running_torch()},
          {"default_engine", engine::default_engine_owner()},
          {"on", installed()},
          {"why_off", why_off()},
          {"variables", variables}};
}

void print_about(const nlohmann::json& about) {
  auto line = [](const char* what, const std::string& value) {
    std::cout << std::left << std::setw(20) << what << value << '\n';
  };
  line("library", about["library"]);
  line("LibTorch built for", about["torch_built_for"]);
  line("LibTorch found", about["torch_found"]);
  line("default engine", about["default_engine"]);
  line("Overdrive is", about["on"].get<bool>() ? "on" : "off: " + about["why_off"].get<std::string>());
  std::cout << '\n';
  for (const auto& variable : about["variables"]) {
    const auto& value = variable["value"];
    std::cout << std::left << std::setw(24) << variable["name"].get<std::string>() << std::setw(12)
              << (value.is_null() ? "(not set)" : value.get<std::string>()) << " "
              << variable["allowed"].get<std::string>() << ": " << variable["meaning"].get<std::string>()
              << '\n';
  }
}

}  // namespace

void add_env(Program& program) {
  auto json = std::make_shared<std::string>();
  auto quiet = std::make_shared<bool>(false);
  CLI::App* command = program.add("env", "Tell which library, LibTorch, engine and settings are in use.",
                                  "overdrive env", [json, quiet] {
                                    JsonFile file(*json);
                                    const nlohmann::json about = describe();
                                    if (!*quiet) print_about(about);
                                    file.write(about);
                                    return kFine;
                                  });
  command->add_option("--json", *json, "Write the same to this file.");
  command->add_flag("--quiet", *quiet, "Print nothing.");
}

}  // namespace overdrive::cli
