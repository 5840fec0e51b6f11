// The kernels of quantise_kernels.h, compiled with the options of one instruction set each. Nothing here may
// call an inline function that others are linked against: the linker would keep one copy for all, perhaps that
// of an instruction set which the processor lacks. at::vec lives in a namespace per set.
#include "hooks/kernels/quantise_bits.h"
#include "hooks/kernels/quantise_kernels.h"

#include <ATen/cpu/vec/vec.h>

namespace overdrive::hooks {
namespace {
using Floats = at::vec::Vectorized<float>;
using Ints = at::vec::Vectorized<int32_t>;
constexpr int64_t kLanes = Floats::size();

constexpr int64_t kLargestBlock = 4096;
constexpr int32_t kMagnitudeBits = 0x7FFFFFFF, kInfinityBits = 0x7F800000;

inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// The bits of the largest magnitude, which are ordered as it: infinity and then NaN come last.
inline int32_t largest_bits(const float* from, int64_t count) {
  const Ints mask(kMagnitudeBits);
  Ints even(0), odd(0);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = at::vec::maximum(even, Ints::loadu(from + i) & mask);
    odd = at::vec::maximum(odd, Ints::loadu(from + i + kLanes) & mask);
  }
  int32_t lanes[kLanes];
  at::vec::maximum(even, odd).store(lanes);
  int32_t largest = 0;
  for (const int32_t lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < count; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, from[i]) & kMagnitudeBits;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// The random bits of up to kLargestBlock elements from `first` on.
inline void roll(RoundingKey key, int64_t first, int64_t count, uint32_t* row) {
  const uint64_t begin = static_cast<uint64_t>(first), last = begin + static_cast<uint64_t>(count) - 1;
  const uint32_t low = static_cast<uint32_t>(begin);
  if (begin >> 32 != last >> 32) {
    for (int64_t i = 0; i < count; ++i) row[i] = random_bits_of(key.first, key.second, first + i);
    return;
  }
  const uint32_t second = second_part(key.second, begin);
  for (int64_t i = 0; i < count; ++i) row[i] = random_bits(key.first, second, low + static_cast<uint32_t>(i));
}

// The whole numbers next to x / scale, as floats, of up to one vector. Nearest rounding makes no zero of what
// is none: a backward may only ask which elements are zero, as that of ReLU does.
inline Floats whole_numbers(Floats x, Floats factor, const float* dice) {
  const Floats zero(0.F), one(1.F);
  Floats code = x * factor;
  if (dice != nullptr) {
    code = (code + Floats::loadu(dice)).floor();
  } else {
    const Floats nearest = code.round();
    const Floats sign = Floats::blendv(one, zero - one, x < zero);
    code = Floats::blendv(nearest, sign, (nearest == zero) & (x != zero));
  }
  return at::vec::clamp(code, Floats(-kLargestCode), Floats(kLargestCode));
}

// One block of finite elements. Step by step through the block, which the first-level cache holds: so each loop
// is one that compilers make vectors of.
inline void to_codes(const float* from, int64_t first, int64_t count, float inverse, RoundingKey key,
                     int8_t* codes) {
  alignas(64) float whole[kLargestBlock];
  alignas(64) float dice[kLargestBlock + kLanes];
  if (key.use) {
    alignas(64) uint32_t row[kLargestBlock];
    roll(key, first, count, row);
    for (int64_t i = 0; i < count; ++i) dice[i] = random_part(row[i]);
    for (int64_t i = count; i < count + kLanes; ++i) dice[i] = 0;  // read with the last ones
  }
  const Floats factor(inverse);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t lanes = lesser(kLanes, count - i);
    const Floats x = lanes == kLanes ? Floats::loadu(from + i) : Floats::loadu(from + i, lanes);
    whole_numbers(x, factor, key.use ? dice + i : nullptr).store(whole + i, static_cast<int>(lanes));
  }
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(static_cast<int32_t>(whole[i]));
}

inline bool is_finite(float x) { return x - x == 0; }

// A block's scale, and what to multiply with for its codes.
inline float inverse_of(float magnitude, float& scale) {
  const bool tiny = magnitude < kTooSmall;
  scale = tiny ? 0 : magnitude / kLargestCode;
  return tiny ? 0 : kLargestCode / magnitude;
}

// With NaN or infinities: those get their codes, the others what they get without them.
inline void odd_block_to_int8(const float* from, int64_t first, int64_t count, RoundingKey key, int8_t* codes,
                              float& scale) {
  alignas(64) float finite[kLargestBlock];
  for (int64_t i = 0; i < count; ++i) finite[i] = is_finite(from[i]) ? from[i] : 0;
  const float inverse = inverse_of(__builtin_bit_cast(float, largest_bits(finite, count)), scale);
  to_codes(finite, first, count, inverse, key, codes);
  for (int64_t i = 0; i < count; ++i) {
    if (!is_finite(from[i])) codes[i] = special_code(from[i]);
  }
}

void to_int8(const float* from, int64_t begin, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
             float* scales) {
  for (int64_t at = 0; at < count; at += block) {
    const int64_t here = lesser(block, count - at);
    const int32_t largest = largest_bits(from + at, here);
    float& scale = scales[at / block];
    if (largest >= kInfinityBits) {
      odd_block_to_int8(from + at, begin + at, here, key, codes + at, scale);
    } else {
      const float inverse = inverse_of(__builtin_bit_cast(float, largest), scale);
      to_codes(from + at, begin + at, here, inverse, key, codes + at);
    }
  }
}

inline bool is_special(int8_t code) { return code <= kMinusInfinity || code == kInfinity; }

inline float special_value(int8_t code) {
  return code == kNaN ? __builtin_nanf("") : code == kInfinity ? __builtin_inff() : -__builtin_inff();
}

// The product of the largest scale and the largest code may round up to infinity.
inline float value_of(int8_t code, float scale) {
  if (is_special(code)) return special_value(code);
  const float value = static_cast<float>(code) * scale;
  return value > kFloatMax ? kFloatMax : value < -kFloatMax ? -kFloatMax : value;
}

void from_int8(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to) {
  for (int64_t at = 0; at < count; at += block) {
    const int64_t here = lesser(block, count - at);
    const float scale = scales[at / block];
    uint8_t odd = !(scale * kLargestCode <= kFloatMax);
    for (int64_t i = 0; i < here; ++i) odd |= static_cast<uint8_t>(is_special(codes[at + i]));
    if (odd == 0) {
      for (int64_t i = 0; i < here; ++i) to[at + i] = static_cast<float>(codes[at + i]) * scale;
    } else {
      for (int64_t i = 0; i < here; ++i) to[at + i] = value_of(codes[at + i], scale);
    }
  }
}

void to_bfloat16(const float* from, int64_t begin, int64_t count, RoundingKey key, uint16_t* to) {
  if (!key.use) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]);
      to[i] = bfloat16_bits(bits, half_to_even(bits));
    }
    return;
  }
  alignas(64) uint32_t row[kLargestBlock];
  for (int64_t at = 0; at < count; at += kLargestBlock) {
    const int64_t here = lesser(kLargestBlock, count - at);
    roll(key, begin + at, here, row);
    for (int64_t i = 0; i < here; ++i) {
      to[at + i] = bfloat16_bits(__builtin_bit_cast(uint32_t, from[at + i]), row[i] & 0xFFFFU);
    }
  }
}

void from_bfloat16(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = __builtin_bit_cast(float, static_cast<uint32_t>(from[i]) << 16);
  }
}

}  // namespace
}  // namespace overdrive::hooks
