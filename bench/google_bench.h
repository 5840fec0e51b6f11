// Runs graphs of `graph_kinds()` under Google Benchmark, one engine at a time. Owned by the *_bench.cpp
// programs, which name the graphs; for profiles and trends. Ratios to stock come from engine_bench, which
// alternates. Without LibTorch's headers, so that a program compiles at once.
#pragma once

#include <string>
#include <vector>

namespace overdrive::bench {

// A program's main(): times the graphs `names` on both engines, e.g. as "chain/stock/1000". The exit status.
int run_graphs(int argc, char** argv, const std::vector<std::string>& names);

}  // namespace overdrive::bench
