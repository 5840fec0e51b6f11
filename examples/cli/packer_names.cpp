#include "examples/cli/packer_names.h"

#include <functional>
#include <utility>

namespace overdrive::cli {

namespace {

using Make = std::function<hooks::HooksPtr()>;

const std::vector<std::pair<std::string, Make>>& packers() {
  static const std::vector<std::pair<std::string, Make>> all{
      {"plain", [] { return hooks::HooksPtr(); }},
      {"keep", [] { return hooks::keep(); }},
      {"int8", [] { return hooks::schedulable(hooks::quantise()); }},
      {"bf16", [] { return hooks::schedulable(hooks::quantise({.type = hooks::QuantisedType::kBFloat16})); }},
      {"spill", [] { return hooks::schedulable(hooks::spill_to_disk()); }},
      {"offload", [] { return hooks::schedulable(hooks::offload_to_cpu()); }}};
  return all;
}

}  // namespace

std::vector<std::string> packer_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : packers()) names.push_back(name);
  return names;
}

hooks::HooksPtr packer_named(const std::string& name) {
  for (const auto& [known, make] : packers()) {
    if (known == name) return make();
  }
  return nullptr;
}

}  // namespace overdrive::cli
