// Question: what does a checkpointed region cost beyond its own recomputation, and what does it save? Each
// way beside the plain one, in one process, in alternating rounds. Runs on the calling thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace overdrive::bench {

struct CheckpointBenchOptions {
  int rounds = 30;
  double sample_seconds = 5e-3;  // a sample repeats its call until it lasts this long
  bool quick = false;            // small sizes, few rounds: for tests
};

// One object per comparison, handed to `on_row` as it is measured: name, way, figure, unit, lo and hi (95 %,
// where it is a time), goal. Overdrive is installed meanwhile.
void run_checkpoint_bench(const CheckpointBenchOptions& options,
                          const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
