// The kernels of quantise_cuda.h on tensors, on the current stream of their device. no_quantise.cpp replaces
// them in a build without the CUDA toolkit. No state; any thread.
#pragma once

#include "engine/base/torch_types.h"
#include "hooks/kernels/quantise_kernels.h"

#include <cstdint>

namespace overdrive::hooks::cuda {

bool has_kernels();

// `from` is dense float32; the others are on its device and as large as needed.
void quantise_to_int8(const at::Tensor& from, int64_t block, RoundingKey key, at::Tensor& codes,
                      at::Tensor& scales);
void quantise_from_int8(const at::Tensor& codes, const at::Tensor& scales, int64_t block, at::Tensor& to);
void quantise_to_bfloat16(const at::Tensor& from, RoundingKey key, at::Tensor& to);
void quantise_from_bfloat16(const at::Tensor& from, at::Tensor& to);

}  // namespace overdrive::hooks::cuda
