// The switch of a seeded mistake: OVERDRIVE_TEST_FAULT names the one that is on in this process. Only copies of
// sources that faults.py has edited include this.
#pragma once

#include <cstdlib>
#include <string_view>

namespace overdrive::faults {

inline bool on(std::string_view name) {
  static const char* const active = std::getenv("OVERDRIVE_TEST_FAULT");
  return active != nullptr && name == active;
}

}  // namespace overdrive::faults
