// The maker of a node's metadata in anomaly mode, for programs that ask for more than the host's metadata.
// Filled by inspect/ with the options of an install(); asked on any thread. Leaves Python's metadata alone.
#pragma once

#include <torch/csrc/autograd/anomaly_mode.h>

#include <atomic>
#include <memory>

namespace overdrive::engine {

using AnomalySource = std::unique_ptr<torch::autograd::AnomalyMetadata> (*)();
inline constinit std::atomic<AnomalySource> anomaly_source{nullptr};

}  // namespace overdrive::engine
