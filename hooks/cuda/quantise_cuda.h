// The arithmetic of quantise on memory of a CUDA device: written to give the codes, scales and random numbers
// of the CPU, bit for bit (on a GPU: not tested). Compiled without LibTorch, where the CUDA toolkit is. Any
// thread; launches on the given stream and does not wait.
#pragma once

#include "hooks/kernels/quantise_kernels.h"

#include <cstdint>

namespace overdrive::hooks::cuda {

// Each returns null, or what the launch failed with. `stream` is a cudaStream_t; pointers are the device's.
const char* to_int8(const float* from, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
                    float* scales, void* stream);
const char* from_int8(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to,
                      void* stream);
const char* to_bfloat16(const float* from, int64_t count, RoundingKey key, uint16_t* to, void* stream);
const char* from_bfloat16(const uint16_t* from, int64_t count, float* to, void* stream);

}  // namespace overdrive::hooks::cuda
