// In place of quantise_tensors.cpp where the CUDA toolkit is not.
#include "hooks/cuda/quantise_cuda.h"

#include "engine/base/torch_types.h"

namespace overdrive::hooks::cuda {
namespace {
[[noreturn]] void refuse() { TORCH_INTERNAL_ASSERT(false, "quantise was built without CUDA kernels."); }

}  // namespace

bool has_kernels() { return false; }

void quantise_to_int8(const at::Tensor&, int64_t, RoundingKey, at::Tensor&, at::Tensor&) { refuse(); }
void quantise_from_int8(const at::Tensor&, const at::Tensor&, int64_t, at::Tensor&) { refuse(); }
void quantise_to_bfloat16(const at::Tensor&, RoundingKey, at::Tensor&) { refuse(); }
void quantise_from_bfloat16(const at::Tensor&, at::Tensor&) { refuse(); }

}  // namespace overdrive::hooks::cuda
