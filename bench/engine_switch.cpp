#include "bench/engine_switch.h"

#include <c10/util/Exception.h>

namespace overdrive::bench {

EngineKind parse_engine(const std::string& text) {
  if (text == "stock") return EngineKind::kStock;
  TORCH_CHECK(text == "overdrive", "the engine is \"stock\" or \"overdrive\", not \"", text, "\".");
  return EngineKind::kOverdrive;
}

UseEngine::UseEngine(EngineKind kind) : was_installed_(installed()) {
  if (kind == EngineKind::kOverdrive) {
    install();
  } else {
    // A measurement of stock that runs on something else would be a lie.
    TORCH_CHECK(uninstall(), "another engine was installed on top of Overdrive; stock cannot be reached.");
  }
}

UseEngine::~UseEngine() {
  if (was_installed_ == installed()) return;
  if (was_installed_) {
    install();
  } else {
    uninstall();
  }
}

}  // namespace overdrive::bench
