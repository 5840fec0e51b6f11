#include "replay/bind/probe_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace overdrive::replay {

float probe_number(ProbeNumbers kind, std::mt19937_64& random) {
  const auto bits = static_cast<uint32_t>(random());
  const float plain = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F;
  if (kind == ProbeNumbers::kAlike) return plain;
  if (kind == ProbeNumbers::kFarApart) return std::ldexp(plain, static_cast<int>(random() % 120) - 60);
  const uint64_t chance = random() % 64;
  if (chance > 3) return plain;
  if (chance == 0) return std::copysign(std::numeric_limits<float>::infinity(), plain);
  const uint32_t nan = (bits & 0x803fffffU) | 0x7fc00000U;
  float result;
  std::memcpy(&result, &nan, sizeof result);
  return result;
}

int probe_rounds(ProbeNumbers kind, int64_t elements) {
  constexpr int64_t kElements = 32768, kLeast = 8, kMost = 512;
  if (kind != ProbeNumbers::kAlike) return 2;
  return static_cast<int>(std::clamp(kElements / std::max<int64_t>(1, elements), kLeast, kMost));
}

}  // namespace overdrive::replay
