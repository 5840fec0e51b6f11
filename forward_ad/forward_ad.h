// The door to the forward_ad folder: derivatives of functions, and the dual numbers they
// are made of.
//
//   namespace fwd = overdrive::forward_ad;
//   auto [y, dy] = fwd::jvp(f, x, v);
//   at::Tensor H = fwd::hessian(g, x);
//
// drivers.h has all of them; dual.h has levels and dual numbers for use by hand;
// custom_jvp.h gives forward rules to your own torch::autograd::Function.
#pragma once

#include "forward_ad/drivers/custom_jvp.h"
#include "forward_ad/drivers/drivers.h"
#include "forward_ad/levels/dual.h"
