#include "hooks/cuda/quantise_cuda.h"

#include "engine/base/torch_types.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace overdrive::hooks::cuda {
namespace {
// Starts a kernel with the device of `on` current, on its current stream.
template <typename Launch>
void start(const at::Tensor& on, const Launch& launch) {
  const c10::DeviceGuard device(on.device());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(on.device().type()).getStream(on.device());
  const char* const error = launch(stream.native_handle());
  TORCH_CHECK(error == nullptr, "quantise could not start a kernel on ", on.device(), " for a tensor of sizes ",
              on.sizes(), ": ", error, ".");
}

}  // namespace

bool has_kernels() { return true; }

void quantise_to_int8(const at::Tensor& from, int64_t block, RoundingKey key, at::Tensor& codes,
                      at::Tensor& scales) {
  start(from, [&](void* stream) {
    return to_int8(from.const_data_ptr<float>(), from.numel(), block, key, codes.mutable_data_ptr<int8_t>(),
                   scales.mutable_data_ptr<float>(), stream);
  });
}

void quantise_from_int8(const at::Tensor& codes, const at::Tensor& scales, int64_t block, at::Tensor& to) {
  start(to, [&](void* stream) {
    return from_int8(codes.const_data_ptr<int8_t>(), scales.const_data_ptr<float>(), to.numel(), block,
                     to.mutable_data_ptr<float>(), stream);
  });
}

void quantise_to_bfloat16(const at::Tensor& from, RoundingKey key, at::Tensor& to) {
  start(from, [&](void* stream) {
    return to_bfloat16(from.const_data_ptr<float>(), from.numel(), key,
                       static_cast<uint16_t*>(to.mutable_data_ptr()), stream);
  });
}

void quantise_from_bfloat16(const at::Tensor& from, at::Tensor& to) {
  start(to, [&](void* stream) {
    return from_bfloat16(static_cast<const uint16_t*>(from.const_data_ptr()), to.numel(),
                         to.mutable_data_ptr<float>(), stream);
  });
}

}  // namespace overdrive::hooks::cuda
