#include "bench/engine_switch.h"

#include <c10/util/Exception.h>

namespace overdrive::bench {
namespace {

// The fuzzer in this program reads what a task says of its nodes, so the engine would fill those lists here, at
// the price of running the nodes once more. The programs that a measurement speaks for do not read them.
engine::Options options_of_a_user() {
  auto options = engine::Options::from_environment();
  if (options.graph_views == engine::GraphViews::kAuto) options.graph_views = engine::GraphViews::kOff;
  return options;
}

}  // namespace

EngineKind parse_engine(const std::string& text) {
  if (text == "stock") return EngineKind::kStock;
  TORCH_CHECK(text == "overdrive", "the engine is \"stock\" or \"overdrive\", not \"", text, "\".");
  return EngineKind::kOverdrive;
}

UseEngine::UseEngine(EngineKind kind) : was_installed_(installed()) {
  if (kind == EngineKind::kOverdrive) {
    install(options_of_a_user());
  } else {
    // A measurement of stock that runs on something else would be a lie.
    TORCH_CHECK(uninstall(), "another engine was installed on top of Overdrive; stock cannot be reached.");
  }
}

UseEngine::~UseEngine() {
  if (was_installed_ == installed()) return;
  if (was_installed_) {
    install(options_of_a_user());
  } else {
    uninstall();
  }
}

}  // namespace overdrive::bench
