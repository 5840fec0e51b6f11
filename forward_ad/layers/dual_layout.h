// A tangent has the memory layout of its primal, so that a view of the one is a view of the
// other (LibTorch's rule). What has to be done for that. Any thread. Private.
#pragma once

#include <ATen/core/Tensor.h>

namespace overdrive::forward_ad {

// LibTorch's idea of one layout, which it asserts rather than makes for some views.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

// The primal, or a copy of it if no tangent with values of its own can lie like it: elements that
// share memory, as after expand(), have one place for several numbers. Nobody can write into such a
// primal anyway. Also where a lazy conjugation or negation is on one of the two only.
at::Tensor primal_that_takes(const at::Tensor& primal, const at::Tensor& tangent);

// The tangent, or a copy of it that lies as the primal does.
at::Tensor with_layout_of(const at::Tensor& primal, const at::Tensor& tangent);

}  // namespace overdrive::forward_ad
