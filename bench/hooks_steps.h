// Question: what does a training step cost under each packer, and what does it hold? Rows of the table "step",
// see hooks_bench.h. On one thread, which the caller sees to; Overdrive is installed.
#pragma once

#include "bench/hooks_bench.h"

namespace overdrive::bench {

// Without times when not `timed`.
void hooked_steps(const HooksBenchOptions& options, bool timed,
                  const std::function<void(const nlohmann::json&)>& on_row);

}  // namespace overdrive::bench
