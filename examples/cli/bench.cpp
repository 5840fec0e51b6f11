// `overdrive bench WHAT`: measures stock and ours in one process and prints a row as each is done.
#include "bench/engine_bench.h"
#include "bench/environment.h"
#include "bench/graph.h"
#include "examples/cli/bench_commands.h"
#include "examples/cli/cli.h"
#include "examples/cli/progress.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

struct EngineArguments {
  bench::EngineBenchOptions options;
  std::string json;
  int threads = 1;
  bool quiet = false;
};

void print_engine_row(const nlohmann::json& row) {
  std::printf("%-14s %9lld %9lld %11.1f %11.1f %11.1f   %.3f [%.3f, %.3f]\n",
              row["graph"].get<std::string>().c_str(), row["size"].get<long long>(),
              row["nodes"].get<long long>(), row["stock_ns_per_node"].get<double>(),
              row["overdrive_ns_per_node"].get<double>(), row["oracle_ns_per_node"].get<double>(),
              row["ratio"].get<double>(), row["ratio_lo"].get<double>(), row["ratio_hi"].get<double>());
  std::fflush(stdout);
}

int bench_engine(EngineArguments arguments) {
  check_graph_names(arguments.options.graphs);
  if (arguments.options.quick) {
    arguments.options.pairs = std::min(arguments.options.pairs, 6);
    arguments.options.sample_seconds = 0;
  }
  JsonFile file(arguments.json);
  at::set_num_threads(arguments.threads);
  if (!arguments.quiet) {
    std::printf("%-14s %9s %9s %11s %11s %11s   %s\n", "graph", "size", "nodes", "stock ns", "overdrive",
                "by hand", "ratio [95 %]");
  }
  return report_rows("engine", file, arguments.quiet, print_engine_row,
                     [&](const OnRow& on_row) { bench::run_engine_bench(arguments.options, on_row); });
}

void add_engine(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<EngineArguments>();
  CLI::App* command = program.add_to(parent, "engine", "Time a backward per node: stock, Overdrive, by hand.",
                                     "overdrive bench engine --graph chain --json engine.json",
                                     [arguments] { return bench_engine(*arguments); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--graph", arguments->options.graphs, "Only these graphs (repeat or list them).");
  command->add_option("--max-size", arguments->options.max_size, "Leave out graphs of a larger size.")
      ->check(above_zero());
  command->add_option("--pairs", arguments->options.pairs, "Alternating pairs a graph.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "Threads inside one operation.")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Small graphs and few pairs: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace

int report_rows(const std::string& benchmark, const JsonFile& file, bool quiet,
                void (*show)(const nlohmann::json& row), const std::function<void(const OnRow&)>& measure) {
  nlohmann::json rows = nlohmann::json::array();
  const bool stopped = stopped_early([&] {
    measure([&](const nlohmann::json& row) {
      if (!quiet) show(row);
      rows.push_back(row);
      check_interrupt();
    });
  });
  file.write(
      {{"benchmark", benchmark}, {"environment", bench::environment()}, {"rows", rows}, {"stopped", stopped}});
  return kFine;
}

void check_graph_names(const std::vector<std::string>& names) {
  const auto& kinds = bench::graph_kinds();
  for (const std::string& name : names) {
    const bool known =
        std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.name == name; });
    if (!known) throw UsageError("there is no graph \"" + name + "\"; `overdrive list` names them.");
  }
}

void add_bench(Program& program) {
  CLI::App* command = program.add("bench", "Measure stock and Overdrive side by side.",
                                  "overdrive bench engine --quick", nullptr);
  add_engine(program, *command);
  add_bench_devices(program, *command);
  add_bench_memory(program, *command);
  add_bench_forward_ad(program, *command);
  add_bench_hooks(program, *command);
  add_bench_capture(program, *command);
  add_bench_checkpoint(program, *command);
}

}  // namespace overdrive::cli
