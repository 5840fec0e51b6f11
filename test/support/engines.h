// The two engines that a contract test runs on. Stock is the oracle: an expectation
// that does not hold there is wrong. Owned by nobody, all static; main thread only.
// Which behaviour is expected is the tests' business.
#pragma once

#include "engine/engine.h"
#include "test/support/pch.h"

#include <string>

namespace overdrive::test {

struct StockEngine {
  static constexpr const char* kName = "Stock";
  static constexpr bool kOverdrive = false;
  static void install() { uninstall(); }
};

struct Overdrive {
  static constexpr const char* kName = "Overdrive";
  static constexpr bool kOverdrive = true;
  static void install() { overdrive::install(); }
};

using Engines = testing::Types<StockEngine, Overdrive>;

struct EngineNames {
  template <typename E>
  static std::string GetName(int) {
    return E::kName;
  }
};

// Runs `scenario` on engine E, then puts back the engine that was the default.
template <typename E, typename Scenario>
auto on(Scenario&& scenario) {
  struct PutBack {
    bool was_installed = installed();
    ~PutBack() { was_installed ? overdrive::install() : void(uninstall()); }
  } put_back;
  E::install();
  return scenario();
}

}  // namespace overdrive::test
