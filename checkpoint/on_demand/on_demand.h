// The form that recomputes on demand, as a function. The region keeps its graph; hooks drop the tensors that
// its nodes save, and the first node of the backward that asks for its tensor makes the region run again, for
// all nodes.
#pragma once

#include "checkpoint/region/options.h"

namespace overdrive::checkpoint {

Tensors run_on_demand(Function fn, const Tensors& inputs, const Options& options);

}  // namespace overdrive::checkpoint
