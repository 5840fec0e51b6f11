// `overdrive bench checkpoint`: what checkpointing costs and saves.
#include "bench/checkpoint_bench.h"
#include "examples/cli/bench_commands.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

void print_checkpoint_row(const nlohmann::json& row) {
  std::printf("%-38s %-14s %10.3f [%.3f, %.3f] %-9s goal %s\n", row["name"].get<std::string>().c_str(),
              row["way"].get<std::string>().c_str(), row["figure"].get<double>(), row["lo"].get<double>(),
              row["hi"].get<double>(), row["unit"].get<std::string>().c_str(),
              row["goal"].get<std::string>().c_str());
  std::fflush(stdout);
}

int bench_checkpoint(const std::string& json, bench::CheckpointBenchOptions options, int threads, bool quiet) {
  if (options.quick) options = {.rounds = 3, .sample_seconds = 0, .quick = true};
  JsonFile file(json);
  at::set_num_threads(threads);
  return report_rows("checkpoint", file, quiet, print_checkpoint_row,
                     [&](const OnRow& on_row) { bench::run_checkpoint_bench(options, on_row); });
}

}  // namespace

void add_bench_checkpoint(Program& program, CLI::App& parent) {
  struct Arguments {
    bench::CheckpointBenchOptions options;
    std::string json;
    int threads = 1;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_to(
      parent, "checkpoint", "Time and weigh checkpointed regions beside the plain ones.",
      "overdrive bench checkpoint --json checkpoint.json", [arguments] {
        return bench_checkpoint(arguments->json, arguments->options, arguments->threads, arguments->quiet);
      });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--rounds", arguments->options.rounds, "Alternating rounds a comparison.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "Threads inside one operation.")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Small sizes and few rounds: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
