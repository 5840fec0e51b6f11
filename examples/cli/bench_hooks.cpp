// `overdrive bench hooks`: what saved-tensor hooks cost and save.
#include "bench/hooks_bench.h"
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
  if (row["table"] == "saved tensor") {
    std::printf("%-40s %8.1f ns [%.1f, %.1f]\n", text("name").c_str(), number("ns"), number("ns_lo"),
                number("ns_hi"));
  } else if (row["table"] == "packer") {
    std::printf("%-40s %8.3f of two memcpy [%.3f, %.3f]   %.4f of the bytes\n", text("name").c_str(),
                number("speed_of_two_memcpy"), number("speed_lo"), number("speed_hi"), number("bytes_ratio"));
  } else {
    std::printf("%-12s %-30s %9.2f ms (%.2f, %+.2f ms)   saved %11.0f B (%.3f)   peak %11.0f B (%.3f)\n",
                text("net").c_str(), text("packer").c_str(), number("ms"), number("ms_ratio"),
                number("added_ms"), number("saved_bytes"), number("saved_ratio"), number("peak_bytes"),
                number("peak_ratio"));
  }
  std::fflush(stdout);
}

int bench_hooks(const std::string& json, const bench::HooksBenchOptions& options, bool quiet) {
  JsonFile file(json);
  at::set_num_threads(1);
  return report_rows("hooks", file, quiet, print_row,
                     [&](const OnRow& on_row) { bench::run_hooks_bench(options, on_row); });
}

}  // namespace

void add_bench_hooks(Program& program, CLI::App& parent) {
  struct Arguments {
    bench::HooksBenchOptions options;
    std::string json;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_to(
      parent, "hooks", "Time saved-tensor hooks and count the bytes they save.",
      "overdrive bench hooks --json hooks.json",
      [arguments] { return bench_hooks(arguments->json, arguments->options, arguments->quiet); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--rounds", arguments->options.rounds, "Samples a row.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Small sizes and few rounds: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
