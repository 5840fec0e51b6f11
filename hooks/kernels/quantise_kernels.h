// The arithmetic of quantise, on plain memory: compiled once for every instruction set that the library picks
// from at run time. Every set gives the same bits. No state; any thread. Leaves tensors to packers/quantise.
#pragma once

#include "engine/base/export.h"

#include <cstdint>

namespace overdrive::hooks {

// Random numbers by counting: the number of element i is a function of the key and i. `use` false: nearest.
struct RoundingKey {
  bool use = false;
  uint32_t first = 0;
  uint32_t second = 0;
};

struct QuantiseKernels {
  const char* name;
  // `count` elements from element `begin` on, a multiple of `block`; one scale for each block. The codes -128,
  // -127 and 127 are NaN and the infinities.
  void (*to_int8)(const float* from, int64_t begin, int64_t count, int64_t block, RoundingKey key,
                  int8_t* codes, float* scales);
  void (*from_int8)(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to);
  void (*to_bfloat16)(const float* from, int64_t begin, int64_t count, RoundingKey key, uint16_t* to);
  void (*from_bfloat16)(const uint16_t* from, int64_t count, float* to);
};

// The best set for this processor, and the set that every processor runs.
OVERDRIVE_API const QuantiseKernels& quantise_kernels();
OVERDRIVE_API const QuantiseKernels& portable_quantise_kernels();

}  // namespace overdrive::hooks
