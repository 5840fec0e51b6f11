// Question: what does a captured training step cost beside stock's and Overdrive's? Whole steps (forward,
// backward, optimizer) of small models, timed in turn in one process by the thread's CPU time.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

struct CaptureBenchOptions {
  int rounds = 31;
  std::vector<std::string> models = {};  // empty: all of them
  bool quick = false;                    // few rounds and calls: for tests
};

// One object a row: model, stock_us, overdrive_us, captured_us, ratio of captured to stock with its interval,
// replayed (whether the step was), lean and steps, arena_bytes, same_bits (of parameters and losses after the
// rounds).
void run_capture_bench(const CaptureBenchOptions& options,
                       const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
