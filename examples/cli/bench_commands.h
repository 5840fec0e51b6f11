// What the files of `overdrive bench` share. Private to this folder.
#pragma once

#include "examples/cli/cli.h"

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::cli {

void add_bench_devices(Program& program, CLI::App& parent);
void add_bench_memory(Program& program, CLI::App& parent);
void add_bench_forward_ad(Program& program, CLI::App& parent);
void add_bench_hooks(Program& program, CLI::App& parent);
void add_bench_checkpoint(Program& program, CLI::App& parent);
void add_bench_capture(Program& program, CLI::App& parent);

using OnRow = std::function<void(const nlohmann::json& row)>;

// Keeps the rows that `measure` gives, until Ctrl-C, shows each as it comes unless `quiet`, and writes the
// file.
int report_rows(const std::string& benchmark, const JsonFile& file, bool quiet,
                void (*show)(const nlohmann::json& row), const std::function<void(const OnRow&)>& measure);

// Throws UsageError when a name is not a graph's.
void check_graph_names(const std::vector<std::string>& names);

}  // namespace overdrive::cli
