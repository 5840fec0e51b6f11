// The graphs of `overdrive bench devices`. Their nodes sit on devices of an accelerator that the process
// must have (PrivateUse1), and do nothing. Pure functions; own nothing.
#pragma once

#include "bench/graph.h"

#include <vector>

namespace overdrive::bench {

constexpr int kPipelineDevices = 8;

const std::vector<GraphKind>& device_graph_kinds();

}  // namespace overdrive::bench
