// The error for an option that cannot be. Private to this folder.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>

namespace overdrive::hooks {

inline void check_not_negative(const char* packer, const char* option, int64_t value) {
  TORCH_CHECK(value >= 0, packer, "() was given ", option, " = ", value, "; it takes 0 and more.");
}

}  // namespace overdrive::hooks
