#include "bench/benchmark.h"

namespace overdrive::bench {

Benchmark engine_benchmark();
Benchmark nodes_benchmark();
Benchmark devices_benchmark();
Benchmark memory_benchmark();
Benchmark forward_ad_benchmark();
Benchmark hooks_benchmark();
Benchmark checkpoint_benchmark();
Benchmark capture_benchmark();
Benchmark lanes_benchmark();
Benchmark nan_benchmark();
Benchmark step_files_benchmark();

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all{engine_benchmark(),     nodes_benchmark(),      devices_benchmark(),
                                          memory_benchmark(),     forward_ad_benchmark(), hooks_benchmark(),
                                          checkpoint_benchmark(), capture_benchmark(),    lanes_benchmark(),
                                          nan_benchmark(),        step_files_benchmark()};
  return all;
}

}  // namespace overdrive::bench
