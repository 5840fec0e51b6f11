// A training step, captured into a CUDA graph and replayed. Only where LibTorch has CUDA.
#pragma once

#include "bench/networks.h"

#include <nlohmann/json_fwd.hpp>

namespace overdrive::bench {

// Null where there is nothing to capture with. Else a row: for each engine the milliseconds of the capture and
// of a replay, and whether the gradients of the replays are the same bits.
nlohmann::json measure_graph_capture(at::Device device, bool quick);

}  // namespace overdrive::bench
