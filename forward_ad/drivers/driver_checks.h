// Checks of what a caller gives to a driver, and of the results of the caller's function. No state; any thread.
// Leaves out the shapes of tangents and cotangents, which the drivers compare themselves. Private.
#pragma once

#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad::detail {

// An error where there is no input, or one is undefined.
void check_inputs(const char* driver, const Tensors& inputs);
// The same, and where an input has a type without derivatives. `real`: complex ones are refused, too.
void check_differentiable(const char* driver, const Tensors& inputs, bool real = false);

// Calls the function. An error where its results are undefined; errors of LibTorch about a custom Function say
// what to write instead.
Output call(const char* driver, const Function& f, const Tensors& inputs);

}  // namespace overdrive::forward_ad::detail
