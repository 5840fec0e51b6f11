#include "inspect/kernels/value_range.h"

#include <algorithm>
#include <cstring>

namespace overdrive::inspect {
namespace {

// Adding one to a full exponent carries into the sign.
template <typename Bits, typename Value>
constexpr Bits kExponent = sizeof(Bits) == 4 ? Bits{0x7F800000} : static_cast<Bits>(0x7FF0000000000000);
template <typename Bits>
constexpr Bits kOne = sizeof(Bits) == 4 ? Bits{0x00800000} : static_cast<Bits>(0x0010000000000000);

// Independent accumulators let the compiler keep them in vector registers without another order of additions:
// there are none.
template <typename Value, typename Bits>
ValueRange range(const Value* values, size_t count) {
  constexpr size_t kLanes = 64 / sizeof(Value);
  Value least[kLanes], most[kLanes];
  Bits carried[kLanes] = {};
  std::fill_n(least, kLanes, std::numeric_limits<Value>::infinity());
  std::fill_n(most, kLanes, -std::numeric_limits<Value>::infinity());
  const auto take = [&](size_t lane, Value value) {
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    carried[lane] |= static_cast<Bits>((bits & kExponent<Bits, Value>)+kOne<Bits>);
    least[lane] = value < least[lane] ? value : least[lane];
    most[lane] = value > most[lane] ? value : most[lane];
  };
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, values[at + lane]);
  }
  for (; at < count; ++at) take(0, values[at]);
  ValueRange found;
  Bits all = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    found.least = std::min<double>(found.least, least[lane]);
    found.most = std::max<double>(found.most, most[lane]);
    all |= carried[lane];
  }
  found.finite = (all >> (8 * sizeof(Bits) - 1)) == 0;
  return found;
}

}  // namespace

ValueRange range_of(const float* values, size_t count) { return range<float, uint32_t>(values, count); }
ValueRange range_of(const double* values, size_t count) { return range<double, uint64_t>(values, count); }

bool all_finite(const uint16_t* values, size_t count, uint16_t exponent_bits) {
  bool finite = true;
  for (size_t i = 0; i < count; ++i) finite &= (values[i] & exponent_bits) != exponent_bits;
  return finite;
}

}  // namespace overdrive::inspect
