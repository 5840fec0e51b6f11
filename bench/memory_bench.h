// Question: does a backward on our engine ever hold more memory than on stock? Bytes, not time:
// most alive at once during one backward, tensors and everything else apart.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

struct MemoryBenchOptions {
  std::vector<std::string> graphs;  // empty: all of them
  int64_t max_size = INT64_MAX;
  bool quick = false;
};

// One object per graph and size: graph, size, nodes, {stock,overdrive}_{tensor,heap}_peak_bytes, _peak_bytes
// (their sum), _kept_bytes (still alive after the backward), allocations, ratio, above_stock.
void run_memory_bench(const MemoryBenchOptions& options,
                      const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
