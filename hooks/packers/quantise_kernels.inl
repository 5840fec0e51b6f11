// The kernels of quantise_kernels.h, compiled with the options of one instruction set each. Nothing here may
// call an inline function that others are linked against: the linker would keep one copy for all, perhaps
// that of an instruction set which the processor lacks. at::vec lives in a namespace per set.
#include "hooks/packers/quantise_kernels.h"

#include <ATen/cpu/vec/vec.h>

namespace overdrive::hooks {
namespace {

using Floats = at::vec::Vectorized<float>;
using Ints = at::vec::Vectorized<int32_t>;
constexpr int64_t kLanes = Floats::size();

constexpr float kLargestCode = 126;
constexpr int8_t kNaN = -128, kMinusInfinity = -127, kInfinity = 127;
constexpr float kFloatMax = 3.40282346638528859812e+38F;
constexpr float kTooSmall = 1.5e-36F;  // below it a scale would lose its digits
constexpr int64_t kLargestBlock = 4096;

// A bijection of 32 bits that leaves no pattern behind (two rounds of xor, shift and multiply).
inline uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0xD35A2D97U;
  x ^= x >> 15;
  return x;
}

inline uint32_t random_bits(RoundingKey key, int64_t element) {
  const uint64_t index = static_cast<uint64_t>(element);
  const uint32_t high = static_cast<uint32_t>(index >> 32);
  return mixed(mixed(static_cast<uint32_t>(index) ^ key.first) + key.second + high * 0x9E3779B9U);
}

// The largest finite magnitude.
inline float magnitude_of(const float* from, int64_t count) {
  Floats largest(0.F);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats x = Floats::loadu(from + i).abs();
    const Floats finite = x <= Floats(kFloatMax);  // false for NaN
    largest = at::vec::maximum(largest, x & finite);
  }
  float lanes[kLanes];
  largest.store(lanes);
  float result = 0;
  for (const float lane : lanes) result = lane > result ? lane : result;
  for (; i < count; ++i) {
    const float x = from[i] < 0 ? -from[i] : from[i];
    if (x <= kFloatMax && x > result) result = x;
  }
  return result;
}

inline int8_t special_code(float x) { return x != x ? kNaN : x > 0 ? kInfinity : kMinusInfinity; }

// The whole numbers next to x / scale, as floats; what is not finite becomes 0. Nearest rounding makes no zero
// of what is none: a backward may only ask which elements are zero, as that of ReLU does.
inline void to_codes(const float* from, int64_t first, int64_t count, float inverse, RoundingKey key,
                     float* codes) {
  const Floats factor(inverse), limit(kLargestCode), zero(0.F);
  alignas(64) float dice[kLanes];
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t lanes = count - i < kLanes ? count - i : kLanes;
    const Floats x = lanes == kLanes ? Floats::loadu(from + i) : Floats::loadu(from + i, lanes);
    const Floats finite = x.abs() <= Floats(kFloatMax);
    Floats code = (x & finite) * factor;
    if (key.use) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        dice[lane] = static_cast<float>(random_bits(key, first + i + lane) >> 8) * 0x1p-24F;
      }
      code = (code + Floats::loadu(dice)).floor();
    } else {
      const Floats sign = Floats::blendv(Floats(1.F), Floats(-1.F), x < zero);
      const Floats nearest = code.round();
      code = Floats::blendv(nearest, sign, (nearest == zero) & (x != zero) & finite);
    }
    code = at::vec::minimum(at::vec::maximum(code, zero - limit), limit);
    code.store(codes + i, static_cast<int>(lanes));
  }
}

void to_int8(const float* from, int64_t begin, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
             float* scales) {
  alignas(64) float whole[kLargestBlock];
  for (int64_t at = 0; at < count; at += block) {
    const int64_t here = count - at < block ? count - at : block;
    const float magnitude = magnitude_of(from + at, here);
    const bool tiny = magnitude < kTooSmall;
    scales[at / block] = tiny ? 0 : magnitude / kLargestCode;
    to_codes(from + at, begin + at, here, tiny ? 0 : kLargestCode / magnitude, key, whole);
    bool odd = false;
    for (int64_t i = 0; i < here; ++i) {
      codes[at + i] = static_cast<int8_t>(static_cast<int32_t>(whole[i]));
      odd |= !(from[at + i] - from[at + i] == 0);
    }
    if (!odd) continue;
    for (int64_t i = 0; i < here; ++i) {
      if (!(from[at + i] - from[at + i] == 0)) codes[at + i] = special_code(from[at + i]);
    }
  }
}

inline float special_value(int8_t code) {
  return code == kNaN ? __builtin_nanf("") : code == kInfinity ? __builtin_inff() : -__builtin_inff();
}

void from_int8(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to) {
  for (int64_t at = 0; at < count; at += block) {
    const int64_t here = count - at < block ? count - at : block;
    const float scale = scales[at / block];
    bool odd = false;
    for (int64_t i = 0; i < here; ++i) {
      const int8_t code = codes[at + i];
      float value = static_cast<float>(code) * scale;
      // The product of the largest scale and the largest code may round up to infinity.
      value = value > kFloatMax ? kFloatMax : value;
      to[at + i] = value < -kFloatMax ? -kFloatMax : value;
      odd |= code <= kMinusInfinity || code == kInfinity;
    }
    if (!odd) continue;
    for (int64_t i = 0; i < here; ++i) {
      const int8_t code = codes[at + i];
      if (code <= kMinusInfinity || code == kInfinity) to[at + i] = special_value(code);
    }
  }
}

void to_bfloat16(const float* from, int64_t begin, int64_t count, RoundingKey key, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
    const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
    const bool is_nan = !finite && (bits & 0x007FFFFFU) != 0;
    const uint32_t add = key.use ? random_bits(key, begin + i) & 0xFFFFU : 0x7FFFU + ((bits >> 16) & 1U);
    const uint32_t sum = finite ? bits + add : bits;
    const bool overflow = finite && (sum & 0x7F800000U) == 0x7F800000U;  // stays at the largest
    const uint32_t rounded = overflow ? bits : sum;
    to[i] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded >> 16);
  }
}

void from_bfloat16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
  }
}

}  // namespace
}  // namespace overdrive::hooks
