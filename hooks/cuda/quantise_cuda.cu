#include "hooks/cuda/quantise_cuda.h"

#include "hooks/kernels/quantise_bits.h"

#include <cuda_runtime.h>

namespace overdrive::hooks::cuda {
// With a name: nvcc puts a number made of the source's path into the names of kernels that have no other, and two
// builds in two folders would differ.
namespace kernels {

constexpr int kThreads = 128;
constexpr int64_t kMostGroups = 1 << 20;

__device__ bool is_finite(float x) { return fabsf(x) <= kFloatMax; }  // false for NaN

// The largest finite magnitude of a block, known to all threads of the group. Order does not matter to a
// maximum, so the bits are the CPU's.
__device__ float magnitude_of(const float* from, int64_t count) {
  __shared__ float largest[kThreads];
  float mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    if (is_finite(from[i])) mine = fmaxf(mine, fabsf(from[i]));
  }
  __syncthreads();  // of the block before
  largest[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
  }
  __syncthreads();
  return largest[0];
}

// Multiplication and addition are rounded apart, as on the CPU.
__device__ int8_t code_of(float x, int64_t element, float inverse, RoundingKey key) {
  if (!is_finite(x)) return special_code(x);
  const float exact = __fmul_rn(x, inverse);
  const uint32_t bits = random_bits_of(key.first, key.second, element);
  float code = key.use ? floorf(__fadd_rn(exact, random_part(bits))) : rintf(exact);
  if (!key.use && code == 0 && x != 0) code = x < 0 ? -1.F : 1.F;
  code = fminf(fmaxf(code, -kLargestCode), kLargestCode);
  return static_cast<int8_t>(static_cast<int32_t>(code));
}

// A group of threads for each block of elements.
__global__ void int8_codes(const float* from, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
                           float* scales) {
  for (int64_t at = blockIdx.x * block; at < count; at += gridDim.x * block) {
    const int64_t here = count - at < block ? count - at : block;
    const float magnitude = magnitude_of(from + at, here);
    const bool tiny = magnitude < kTooSmall;
    if (threadIdx.x == 0) scales[at / block] = tiny ? 0 : __fdiv_rn(magnitude, kLargestCode);
    const float inverse = tiny ? 0 : __fdiv_rn(kLargestCode, magnitude);
    for (int64_t i = threadIdx.x; i < here; i += kThreads) {
      codes[at + i] = code_of(from[at + i], at + i, inverse, key);
    }
  }
}

__global__ void int8_values(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const int8_t code = codes[i];
    const float value = __fmul_rn(static_cast<float>(code), scales[i / block]);
    const float bounded = fminf(fmaxf(value, -kFloatMax), kFloatMax);
    to[i] = code == kNaN             ? __uint_as_float(0x7FC00000U)
            : code == kInfinity      ? INFINITY
            : code == kMinusInfinity ? -INFINITY
                                     : bounded;
  }
}

__global__ void bfloat16_halves(const float* from, int64_t count, RoundingKey key, uint16_t* to) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const uint32_t bits = __float_as_uint(from[i]);
    const uint32_t chance = random_bits_of(key.first, key.second, i) & 0xFFFFU;
    to[i] = bfloat16_bits(bits, key.use ? chance : half_to_even(bits));
  }
}

__global__ void bfloat16_values(const uint16_t* from, int64_t count, float* to) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    to[i] = __uint_as_float(static_cast<uint32_t>(from[i]) << 16);
  }
}

dim3 groups(int64_t count, int64_t for_each) {
  const int64_t wanted = (count + for_each - 1) / for_each;
  return dim3(static_cast<unsigned>(wanted < kMostGroups ? wanted : kMostGroups));
}

const char* outcome() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace kernels
using namespace kernels;

const char* to_int8(const float* from, int64_t count, int64_t block, RoundingKey key, int8_t* codes,
                    float* scales, void* stream) {
  if (count == 0) return nullptr;
  int8_codes<<<groups(count, block), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(from, count, block, key,
                                                                                       codes, scales);
  return outcome();
}

const char* from_int8(const int8_t* codes, const float* scales, int64_t count, int64_t block, float* to,
                      void* stream) {
  if (count == 0) return nullptr;
  int8_values<<<groups(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(codes, scales, count,
                                                                                           block, to);
  return outcome();
}

const char* to_bfloat16(const float* from, int64_t count, RoundingKey key, uint16_t* to, void* stream) {
  if (count == 0) return nullptr;
  bfloat16_halves<<<groups(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(from, count, key,
                                                                                               to);
  return outcome();
}

const char* from_bfloat16(const uint16_t* from, int64_t count, float* to, void* stream) {
  if (count == 0) return nullptr;
  bfloat16_values<<<groups(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(from, count, to);
  return outcome();
}

}  // namespace overdrive::hooks::cuda
