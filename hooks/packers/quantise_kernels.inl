// The kernels of quantise_kernels.h, compiled with the options of one instruction set each. Nothing here may
// call an inline function that others are linked against: the linker would keep one copy for all, perhaps
// that of an instruction set which the processor lacks. at::vec lives in a namespace per set.
#include "hooks/packers/quantise_bits.h"
#include "hooks/packers/quantise_kernels.h"

#include <ATen/cpu/vec/vec.h>

namespace overdrive::hooks {
namespace {

using Floats = at::vec::Vectorized<float>;
using Ints = at::vec::Vectorized<int32_t>;
constexpr int64_t kLanes = Floats::size();

constexpr int64_t kLargestBlock = 4096;

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
        dice[lane] = random_part(key, first + i + lane);
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
    to[i] = bfloat16_bits(__builtin_bit_cast(uint32_t, from[i]), key, begin + i);
  }
}

void from_bfloat16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
  }
}

}  // namespace
}  // namespace overdrive::hooks
