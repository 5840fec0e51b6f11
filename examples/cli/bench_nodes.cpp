// `overdrive bench nodes`: each type of node that the engine runs itself, beside its own apply().
#include "bench/nodes_bench.h"
#include "examples/cli/bench_commands.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

struct NodesArguments {
  bench::NodesBenchOptions options;
  std::string json;
  bool quiet = false;
};

void print_node_row(const nlohmann::json& row) {
  std::printf("%-32s %9lld %10.0f %10.0f %10.0f %9.3f %9.3f\n", row["type"].get<std::string>().c_str(),
              row["elements"].get<long long>(), row["stock_ns"].get<double>(), row["apply_ns"].get<double>(),
              row["own_ns"].get<double>(), row["of_stock"].get<double>(), row["of_apply"].get<double>());
  std::fflush(stdout);
}

int bench_nodes(const NodesArguments& arguments) {
  const auto known = bench::benched_node_types();
  for (const std::string& type : arguments.options.types) {
    if (std::find(known.begin(), known.end(), type) == known.end()) {
      throw UsageError("the engine has no node of its own for \"" + type + "\"; docs/own_nodes.md names them.");
    }
  }
  JsonFile file(arguments.json);
  at::set_num_threads(1);
  if (!arguments.quiet) {
    std::printf("%-32s %9s %10s %10s %10s %9s %9s\n", "type", "elements", "stock ns", "apply ns", "own ns",
                "of stock", "of apply");
  }
  return report_rows("nodes", file, arguments.quiet, print_node_row,
                     [&](const OnRow& on_row) { bench::run_nodes_bench(arguments.options, on_row); });
}

}  // namespace

void add_bench_nodes(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<NodesArguments>();
  CLI::App* command = program.add_to(
      parent, "nodes", "Time each type of node that the engine runs itself beside its own apply().",
      "overdrive bench nodes --type MulBackward0", [arguments] { return bench_nodes(*arguments); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--type", arguments->options.types, "Only these types (repeat or list them).");
  command->add_option("--rounds", arguments->options.rounds, "Rounds a row.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Few rounds: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
