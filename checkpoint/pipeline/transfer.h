// A copy from one device to another on a stream of its own, in the forward and, for the gradient, back. Any
// thread, with the devices' current streams; knows no vendor.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::checkpoint {

// The tensor on that device; itself where it is there already.
at::Tensor transfer(const at::Tensor& tensor, at::Device device);

}  // namespace overdrive::checkpoint
