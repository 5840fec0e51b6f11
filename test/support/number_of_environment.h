// A number by which whoever runs a test makes it longer or begins it elsewhere.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace overdrive::test {

inline uint64_t number_of_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace overdrive::test
