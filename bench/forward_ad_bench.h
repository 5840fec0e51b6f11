// Question: what do forward-mode levels cost beyond the layers they stand on, and when is
// forward mode the cheaper way? Each of ours beside the other way to the same numbers, in
// one process, in alternating pairs. Runs on the calling thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace overdrive::bench {

struct ForwardAdBenchOptions {
  int pairs = 30;
  double sample_seconds = 5e-3;  // a sample repeats its call until it lasts this long
  bool quick = false;            // small sizes, few pairs: for tests
};

// One object per comparison, handed to `on_row` as it is measured: name, ours and other
// (what is compared), ours_us, other_us, ratio, ratio_lo, ratio_hi, goal, pairs; for memory
// ours_bytes and other_bytes.
void run_forward_ad_bench(const ForwardAdBenchOptions& options,
                          const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
