// What the files of `overdrive bench` share. Private to this folder.
#pragma once

#include "examples/cli/cli.h"

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::cli {

void add_bench_devices(Program& program, CLI::App& parent);
void add_bench_faults(Program& program, CLI::App& parent);
void add_bench_memory(Program& program, CLI::App& parent);
void add_bench_forward_ad(Program& program, CLI::App& parent);
void add_bench_hooks(Program& program, CLI::App& parent);
void add_bench_checkpoint(Program& program, CLI::App& parent);

using OnRow = std::function<void(const nlohmann::json& row)>;

// Keeps the rows that `measure` gives, until Ctrl-C, shows each as it comes unless `quiet`, and writes the
// file.
int report_rows(const std::string& benchmark, const JsonFile& file, bool quiet,
                void (*show)(const nlohmann::json& row), const std::function<void(const OnRow&)>& measure);

// A row a model: page faults of a training step on stock and on ours, each in a process of its own.
void count_faults(bool quick, const OnRow& on_row);
void print_faults_row(const nlohmann::json& row);

// One such row, for what the memory settings alone give to stock: tuned_stock_milliseconds to stock_milliseconds.
nlohmann::json tuning_alone(const std::string& model);

// Throws UsageError when a name is not a graph's.
void check_graph_names(const std::vector<std::string>& names);

}  // namespace overdrive::cli
