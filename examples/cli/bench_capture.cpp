// `overdrive bench capture`: what a captured training step costs beside stock's.
#include "bench/capture_bench.h"
#include "examples/cli/bench_commands.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

void print_row(const nlohmann::json& row) {
  const auto number = [&](const char* name) { return row[name].get<double>(); };
  const auto text = [&](const char* name) { return row[name].get<std::string>(); };
  std::printf("%-16s %9.1f us %9.1f us %9.1f us   %.3f [%.3f, %.3f]   %s, %s\n", text("model").c_str(),
              number("stock_us"), number("overdrive_us"), number("captured_us"), number("ratio"),
              number("ratio_lo"), number("ratio_hi"), row["replayed"].get<bool>() ? "replayed" : "not replayed",
              row["same_bits"].get<bool>() ? "same bits" : "OTHER BITS");
  if (const std::string refusal = text("refusal"); !refusal.empty()) std::printf("  %s\n", refusal.c_str());
  std::fflush(stdout);
}

int bench_capture(const std::string& json, const bench::CaptureBenchOptions& options, bool quiet) {
  JsonFile file(json);
  at::set_num_threads(1);
  if (!quiet)
    std::printf("%-16s %12s %12s %12s   captured / stock [95 %%]\n", "model", "stock", "Overdrive", "captured");
  return report_rows("capture", file, quiet, print_row,
                     [&](const OnRow& on_row) { bench::run_capture_bench(options, on_row); });
}

}  // namespace

void add_bench_capture(Program& program, CLI::App& parent) {
  struct Arguments {
    bench::CaptureBenchOptions options;
    std::string json;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_to(
      parent, "capture", "Time captured training steps beside eager ones.",
      "overdrive bench capture --json capture.json",
      [arguments] { return bench_capture(arguments->json, arguments->options, arguments->quiet); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--model", arguments->options.models, "Only these models (repeat or list them).");
  command->add_option("--rounds", arguments->options.rounds, "Samples a row.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Few rounds and calls: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
