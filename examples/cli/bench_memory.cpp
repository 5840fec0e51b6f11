// `overdrive bench memory`: the most bytes alive during a backward, stock and ours. Status 1 when ours is more.
#include "bench/environment.h"
#include "bench/hooks_bench.h"
#include "bench/memory_bench.h"
#include "examples/cli/bench_commands.h"
#include "examples/cli/progress.h"

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
  bool packers_only = false;
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

void print_packer_row(const nlohmann::json& row) {
  std::printf("%-12s %-30s %14lld %7.3f %14lld %7.3f\n", row["net"].get<std::string>().c_str(),
              row["packer"].get<std::string>().c_str(), row["saved_bytes"].get<long long>(),
              row["saved_ratio"].get<double>(), row["peak_bytes"].get<long long>(),
              row["peak_ratio"].get<double>());
  std::fflush(stdout);
}

// What a step of two nets holds under each packer of saved tensors.
void bench_packers(const MemoryArguments& arguments, nlohmann::json& rows) {
  if (!arguments.quiet)
    std::printf("\n%-12s %-30s %14s %7s %14s %7s\n", "net", "packer", "saved", "", "peak", "");
  bench::count_saved_bytes({.quick = arguments.options.quick}, [&](const nlohmann::json& row) {
    rows.push_back(row);
    if (!arguments.quiet) print_packer_row(row);
    check_interrupt();
  });
}

// What a heap gives back to the system between steps, and faults in again.
void bench_page_faults(const MemoryArguments& arguments, nlohmann::json& rows) {
  if (!arguments.quiet)
    std::printf("\n%-20s %12s %12s %14s %14s %12s\n", "model", "stock faults", "our faults", "stock peak KiB",
                "our peak KiB", "tuning alone");
  count_faults(arguments.options.quick, [&](const nlohmann::json& row) {
    rows.push_back(row);
    if (!arguments.quiet) print_faults_row(row);
    check_interrupt();
  });
}

int bench_memory(const MemoryArguments& arguments) {
  check_graph_names(arguments.options.graphs);
  JsonFile file(arguments.json);
  at::set_num_threads(1);
  bool above = false;
  nlohmann::json rows = nlohmann::json::array(), packers = rows, faults = rows;
  if (!arguments.quiet && !arguments.packers_only) {
    std::printf("%-14s %9s %12s %12s %12s %12s %12s %7s\n", "graph", "size", "stock tens.", "our tens.",
                "stock heap", "our heap", "we keep", "ratio");
  }
  const auto on_row = [&](const nlohmann::json& row) {
    if (!arguments.quiet) print_memory_row(row);
    above |= row["above_stock"].get<bool>();
    rows.push_back(row);
    check_interrupt();
  };
  const bool stopped = stopped_early([&] {
    if (!arguments.packers_only) bench::run_memory_bench(arguments.options, on_row);
    if (arguments.options.graphs.empty()) bench_packers(arguments, packers);
    if (arguments.options.graphs.empty() && !arguments.packers_only) bench_page_faults(arguments, faults);
  });
  file.write({{"benchmark", "memory"},
              {"environment", bench::environment()},
              {"rows", rows},
              {"packers", packers},
              {"faults", faults},
              {"stopped", stopped}});
  return above ? kDifferenceFound : kFine;
}

}  // namespace

void add_bench_memory(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* command = program.add_to(parent, "memory",
                                     "Count the bytes that a backward holds: stock and Overdrive, and a step "
                                     "under each packer of saved tensors.",
                                     "overdrive bench memory --json memory.json",
                                     [arguments] { return bench_memory(*arguments); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--graph", arguments->options.graphs,
                      "Only these graphs (repeat or list them), and no packers.");
  command->add_option("--max-size", arguments->options.max_size, "Leave out graphs of a larger size.")
      ->check(above_zero());
  command->add_flag("--quick", arguments->options.quick, "Small graphs: to see that it works.");
  command->add_flag("--packers", arguments->packers_only, "Only the step under each packer.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
