// The arithmetic of quantise for one element, for the kernels of every processor: codes, and random numbers by
// counting. In a namespace of each source's own: see quantise_kernels.inl for the reason. No state.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define OVERDRIVE_ON_ALL __host__ __device__
#else
#define OVERDRIVE_ON_ALL
#endif

namespace overdrive::hooks {
namespace {
inline constexpr float kLargestCode = 126;
inline constexpr int8_t kNaN = -128, kMinusInfinity = -127, kInfinity = 127;
inline constexpr float kFloatMax = 3.40282346638528859812e+38F;
inline constexpr float kTooSmall = 1.5e-36F;  // below it a scale would lose its digits

// A bijection of 32 bits that leaves no pattern behind (two rounds of xor, shift and multiply).
OVERDRIVE_ON_ALL inline uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0xD35A2D97U;
  x ^= x >> 15;
  return x;
}

// The random number of an element: of the lower half of its index, and of the key mixed with the upper half.
OVERDRIVE_ON_ALL inline uint32_t second_part(uint32_t second, uint64_t index) {
  return second + static_cast<uint32_t>(index >> 32) * 0x9E3779B9U;
}
OVERDRIVE_ON_ALL inline uint32_t random_bits(uint32_t first, uint32_t second, uint32_t low) {
  return mixed(mixed(low ^ first) + second);
}
OVERDRIVE_ON_ALL inline uint32_t random_bits_of(uint32_t first, uint32_t second, int64_t element) {
  const uint64_t index = static_cast<uint64_t>(element);
  return random_bits(first, second_part(second, index), static_cast<uint32_t>(index));
}

// From 0 to below 1.
OVERDRIVE_ON_ALL inline float random_part(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24F;
}

OVERDRIVE_ON_ALL inline int8_t special_code(float x) {
  return x != x ? kNaN : x > 0 ? kInfinity : kMinusInfinity;
}

// The number that, added, rounds the lower half of a float's bits to nearest, and halves to even.
OVERDRIVE_ON_ALL inline uint32_t half_to_even(uint32_t bits) { return 0x7FFFU + ((bits >> 16) & 1U); }

// The upper half of a float's bits, `add` being added first; below 1 << 16.
OVERDRIVE_ON_ALL inline uint16_t bfloat16_bits(uint32_t bits, uint32_t add) {
  const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
  const bool is_nan = !finite && (bits & 0x007FFFFFU) != 0;
  const uint32_t sum = finite ? bits + add : bits;
  const bool overflow = finite && (sum & 0x7F800000U) == 0x7F800000U;  // stays at the largest
  const uint32_t rounded = overflow ? bits : sum;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded >> 16);
}

}  // namespace
}  // namespace overdrive::hooks
