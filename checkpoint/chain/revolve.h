// A chain of layers of which a fixed number of states is kept. One node stands for all layers but the last,
// which is recorded as usual; the backward of the node goes back layer by layer.
#pragma once

#include "checkpoint/region/options.h"

namespace overdrive::checkpoint {

at::Tensor run_with_revolve(const std::vector<Layer>& layers, const at::Tensor& input, int64_t snapshots,
                            const Options& options);

}  // namespace overdrive::checkpoint
