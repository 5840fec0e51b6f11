// What quantise computes element by element, for the kernels of every processor: the codes, and the random
// numbers by counting. In a namespace of each source's own: see quantise_kernels.inl for why.
#pragma once

#include "hooks/packers/quantise_kernels.h"

#include <cstdint>

#ifdef __CUDACC__
#define OVERDRIVE_ON_ALL __host__ __device__
#else
#define OVERDRIVE_ON_ALL
#endif

namespace overdrive::hooks {
namespace {

constexpr float kLargestCode = 126;
constexpr int8_t kNaN = -128, kMinusInfinity = -127, kInfinity = 127;
constexpr float kFloatMax = 3.40282346638528859812e+38F;
constexpr float kTooSmall = 1.5e-36F;  // below it a scale would lose its digits

// A bijection of 32 bits that leaves no pattern behind (two rounds of xor, shift and multiply).
OVERDRIVE_ON_ALL inline uint32_t mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0xD35A2D97U;
  x ^= x >> 15;
  return x;
}

OVERDRIVE_ON_ALL inline uint32_t random_bits(RoundingKey key, int64_t element) {
  const uint64_t index = static_cast<uint64_t>(element);
  const uint32_t high = static_cast<uint32_t>(index >> 32);
  return mixed(mixed(static_cast<uint32_t>(index) ^ key.first) + key.second + high * 0x9E3779B9U);
}

// From 0 to below 1.
OVERDRIVE_ON_ALL inline float random_part(RoundingKey key, int64_t element) {
  return static_cast<float>(random_bits(key, element) >> 8) * 0x1p-24F;
}

OVERDRIVE_ON_ALL inline int8_t special_code(float x) {
  return x != x ? kNaN : x > 0 ? kInfinity : kMinusInfinity;
}

// The upper half of a float's bits, to nearest even or by chance.
OVERDRIVE_ON_ALL inline uint16_t bfloat16_bits(uint32_t bits, RoundingKey key, int64_t element) {
  const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
  const bool is_nan = !finite && (bits & 0x007FFFFFU) != 0;
  const uint32_t add = key.use ? random_bits(key, element) & 0xFFFFU : 0x7FFFU + ((bits >> 16) & 1U);
  const uint32_t sum = finite ? bits + add : bits;
  const bool overflow = finite && (sum & 0x7F800000U) == 0x7F800000U;  // stays at the largest
  const uint32_t rounded = overflow ? bits : sum;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded >> 16);
}

}  // namespace
}  // namespace overdrive::hooks
