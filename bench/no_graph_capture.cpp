#include "bench/graph_capture.h"

#include <nlohmann/json.hpp>

namespace overdrive::bench {

// This LibTorch has no CUDA.
nlohmann::json measure_graph_capture(at::Device, bool) { return nullptr; }

}  // namespace overdrive::bench
