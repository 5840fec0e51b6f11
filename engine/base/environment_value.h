// What the environment says of one of our variables. Any thread, as long as nobody changes the environment.
#pragma once

#include "engine/base/environment.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

namespace overdrive::base {

// The number that the variable is set to, or the place of its word among those allowed; none where it is not
// set. One that is set to nothing counts as not set: `NAME= program` is how shells unset one. Throws at a bad
// value.
inline std::optional<int> value_from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  const auto* variable = std::find_if(std::begin(kEnvironment), std::end(kEnvironment),
                                      [name](const auto& row) { return std::strcmp(row.name, name) == 0; });
  TORCH_INTERNAL_ASSERT(variable != std::end(kEnvironment));
  const int number = number_of_value(*variable, value);
  if (number < 0) {
    char why[512];
    describe_bad_value(*variable, value, why, sizeof why);
    TORCH_CHECK(false, why);
  }
  return number;
}

}  // namespace overdrive::base
