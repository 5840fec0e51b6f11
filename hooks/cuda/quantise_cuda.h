// The arithmetic of quantise on memory of a CUDA device: written to give the codes, scales and random numbers
// of the CPU, bit for bit (on a GPU: not tested). First from pointers, compiled without LibTorch by the CUDA
// toolkit (quantise_cuda.cu); then on tensors (quantise_tensors.cpp). no_quantise.cpp replaces both in a build
// without the toolkit. Any thread; launches and does not wait.
#pragma once

#include "hooks/kernels/quantise_kernels.h"

#include <cstdint>

namespace at {
class Tensor;
}

namespace overdrive::hooks::cuda {

// Each returns null, or what the launch failed with. `stream` is a cudaStream_t; pointers are the device's.
const char* to_int8(const float* from, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
                    float* scales, void* stream);
const char* from_int8(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to,
                      void* stream);
const char* to_bfloat16(const float* from, int64_t count, RoundingKey key, uint16_t* to, void* stream);
const char* from_bfloat16(const uint16_t* from, int64_t count, float* to, void* stream);

// Whether the build has these kernels.
bool has_kernels();

// On the current stream of the tensors' device. `from` is dense float32; the others are on its device and as
// large as needed.
void quantise_to_int8(const at::Tensor& from, int64_t block, RoundingKey key, at::Tensor& codes,
                      at::Tensor& scales);
void quantise_from_int8(const at::Tensor& codes, const at::Tensor& scales, int64_t block, at::Tensor& to);
void quantise_to_bfloat16(const at::Tensor& from, RoundingKey key, at::Tensor& to);
void quantise_from_bfloat16(const at::Tensor& from, at::Tensor& to);

}  // namespace overdrive::hooks::cuda
