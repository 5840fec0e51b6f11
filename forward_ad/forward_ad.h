// The entry to forward_ad/: derivatives of functions, and the dual numbers that they are made of.
//
//   auto [y, dy] = overdrive::jvp(f, x, v);
//   at::Tensor H = overdrive::hessian(g, x);
//
// drivers.h has the derivatives, transforms.h grad and vmap, functional_call.h modules with other parameters,
// gradcheck.h the comparison with numeric derivatives, second_derivative.h two derivatives in one run, dual.h
// levels and dual numbers for use by hand, and custom_jvp.h rules for a program's own
// torch::autograd::Function.
#pragma once

#include "forward_ad/drivers/custom_jvp.h"
#include "forward_ad/drivers/drivers.h"
#include "forward_ad/drivers/functional_call.h"
#include "forward_ad/drivers/gradcheck.h"
#include "forward_ad/drivers/transforms.h"
#include "forward_ad/levels/dual.h"
#include "forward_ad/taylor/second_derivative.h"

namespace overdrive {

using forward_ad::CustomJvp;
using forward_ad::DoubleVjp;
using forward_ad::DualLevel;
using forward_ad::elementwise_derivative;
using forward_ad::functional_call;
using forward_ad::grad;
using forward_ad::grad_and_value;
using forward_ad::gradcheck;
using forward_ad::GradcheckOptions;
using forward_ad::gradgradcheck;
using forward_ad::hessian;
using forward_ad::hvp;
using forward_ad::jacfwd;
using forward_ad::jacrev;
using forward_ad::jvp;
using forward_ad::make_dual;
using forward_ad::NamedTensors;
using forward_ad::Randomness;
using forward_ad::second_derivative;
using forward_ad::unpack_dual;
using forward_ad::vjp;
using forward_ad::vmap;
using forward_ad::VmapDims;
using forward_ad::VmapInfo;
using forward_ad::VmapOptions;
using forward_ad::VmapResult;
using forward_ad::with_aux;

}  // namespace overdrive
