// Question: what do saved-tensor hooks cost, and what do they save? Time of a saved tensor, speed of packers
// beside a plain copy, bytes that a training step holds under each.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace overdrive::bench {

struct HooksBenchOptions {
  int rounds = 30;
  bool quick = false;  // small sizes, few rounds: for tests
};

// One object a row, with `table`: "saved tensor" (name, ns and its interval, goal_ns), "packer" (name, ratio to
// two memcpy of the same bytes, bytes_ratio), "step" (net, packer, saved_bytes after the forward, peak_bytes of
// the step, both also relative to the same net without hooks; ms, ms_ratio, added_ms).
void run_hooks_bench(const HooksBenchOptions& options,
                     const std::function<void(const nlohmann::json&)>& on_row);

// The rows of "step" without times.
void count_saved_bytes(const HooksBenchOptions& options,
                       const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
