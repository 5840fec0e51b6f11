#include "bench/engine_switch.h"

#include "engine/host/host_rules.h"

#include <c10/util/Exception.h>

namespace overdrive::bench {
EngineKind parse_engine(const std::string& text) {
  if (text == "stock") return EngineKind::kStock;
  TORCH_CHECK(text == "overdrive", "the engine is \"stock\" or \"overdrive\", not \"", text, "\".");
  return EngineKind::kOverdrive;
}

UseEngine::UseEngine(EngineKind kind) : was_installed_(installed()) {
  if (kind == EngineKind::kOverdrive) {
    // The fuzzer in this program reads the lists of nodes in a task, so the engine would fill them here, at the
    // price of running the nodes once more. The programs that a measurement speaks for do not read them.
    engine::host::disregard_readers(true);
    install(engine::Options::from_environment());
  } else {
    // A measurement of stock that runs on something else would be a lie.
    TORCH_CHECK(uninstall(), "another engine was installed on top of Overdrive; stock cannot be reached.");
  }
}

UseEngine::~UseEngine() {
  engine::host::disregard_readers(false);
  if (was_installed_ == installed()) return;
  if (was_installed_) {
    install(engine::Options::from_environment());
  } else {
    uninstall();
  }
}

}  // namespace overdrive::bench
