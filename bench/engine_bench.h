// Question: what does a backward cost per node beyond the nodes themselves? Stock, ours and
// the oracle on the same graph in one process, in alternating pairs. Runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

struct GraphKind;

struct EngineBenchOptions {
  std::vector<std::string> graphs;  // empty: all of them
  int64_t max_size = INT64_MAX;     // leaves out larger graphs
  int pairs = 30;
  double sample_seconds = 2e-2;  // a sample repeats its run for this long and takes the median
  bool quick = false;            // small graphs, few pairs: for tests
};

// One object per graph and size, handed to `on_row` as it is measured: graph, size, nodes, stock_ns_per_node,
// overdrive_ns_per_node, oracle_ns_per_node, ratio, ratio_lo, ratio_hi, pairs, and instructions
// per node (null where they cannot be counted).
void run_engine_bench(const EngineBenchOptions& options,
                      const std::function<void(const nlohmann::json&)>& on_row);

// One such object.
nlohmann::json measure_graph(const GraphKind& kind, int64_t size, int pairs, double sample_seconds);

}  // namespace overdrive::bench
