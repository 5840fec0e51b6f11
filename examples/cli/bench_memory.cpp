// `overdrive bench memory`: the most bytes alive during a backward, stock and ours. Status 1 when ours is more.
#include "bench/environment.h"
#include "bench/memory_bench.h"
#include "examples/cli/bench_commands.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

struct MemoryArguments {
  bench::MemoryBenchOptions options;
  std::string json;
  bool quiet = false;
};

void print_memory_row(const nlohmann::json& row) {
  auto number = [&](const char* name) { return row[name].get<long long>(); };
  std::printf("%-14s %9lld %12lld %12lld %12lld %12lld %12lld %7.3f%s\n",
              row["graph"].get<std::string>().c_str(), number("size"), number("stock_tensor_peak_bytes"),
              number("overdrive_tensor_peak_bytes"), number("stock_heap_peak_bytes"),
              number("overdrive_heap_peak_bytes"), number("overdrive_kept_bytes"), row["ratio"].get<double>(),
              row["above_stock"].get<bool>() ? "  ABOVE STOCK" : "");
  std::fflush(stdout);
}

int bench_memory(const MemoryArguments& arguments) {
  check_graph_names(arguments.options.graphs);
  JsonFile file(arguments.json);
  at::set_num_threads(1);
  bool above = false;
  nlohmann::json rows = nlohmann::json::array();
  if (!arguments.quiet) {
    std::printf("%-14s %9s %12s %12s %12s %12s %12s %7s\n", "graph", "size", "stock tens.", "our tens.",
                "stock heap", "our heap", "we keep", "ratio");
  }
  bench::run_memory_bench(arguments.options, [&](const nlohmann::json& row) {
    if (!arguments.quiet) print_memory_row(row);
    above |= row["above_stock"].get<bool>();
    rows.push_back(row);
  });
  file.write({{"benchmark", "memory"}, {"environment", bench::environment()}, {"rows", rows}});
  return above ? kDifferenceFound : kFine;
}

}  // namespace

void add_bench_memory(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* command = program.add_to(
      parent, "memory", "Count the bytes that a backward holds: stock and Overdrive.",
      "overdrive bench memory --json memory.json", [arguments] { return bench_memory(*arguments); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--graph", arguments->options.graphs, "Only these graphs (repeat or list them).");
  command->add_option("--max-size", arguments->options.max_size, "Leave out graphs of a larger size.")
      ->check(CLI::PositiveNumber);
  command->add_flag("--quick", arguments->options.quick, "Small graphs: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
