#include "engine/options.h"

namespace overdrive::engine {

Options Options::from_environment() { return {}; }

const std::vector<Variable>& environment_variables() {
  static const auto* rows = new std::vector<Variable>{};
  return *rows;
}

}  // namespace overdrive::engine
