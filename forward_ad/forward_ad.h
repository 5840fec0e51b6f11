// The door to forward_ad/: derivatives of functions, and the dual numbers that they are made of.
//
//   namespace fwd = overdrive::forward_ad;
//   auto [y, dy] = fwd::jvp(f, x, v);
//   at::Tensor H = fwd::hessian(g, x);
//
// drivers.h has the derivatives, dual.h levels and dual numbers for use by hand, and custom_jvp.h forward rules
// for a program's own torch::autograd::Function.
#pragma once

#include "forward_ad/drivers/custom_jvp.h"
#include "forward_ad/drivers/drivers.h"
#include "forward_ad/levels/dual.h"
