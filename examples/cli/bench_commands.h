// What the files of `overdrive bench` share. Private to this folder.
#pragma once

#include "examples/cli/cli.h"

#include <string>
#include <vector>

namespace overdrive::cli {

void add_bench_devices(Program& program, CLI::App& parent);
void add_bench_memory(Program& program, CLI::App& parent);
void add_bench_forward_ad(Program& program, CLI::App& parent);
void add_bench_hooks(Program& program, CLI::App& parent);
void add_bench_checkpoint(Program& program, CLI::App& parent);

// Throws UsageError when a name is not a graph's.
void check_graph_names(const std::vector<std::string>& names);

}  // namespace overdrive::cli
