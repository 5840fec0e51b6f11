// `overdrive bench forward_ad`: forward mode's drivers beside the other ways to the same numbers.
#include "bench/forward_ad_bench.h"
#include "examples/cli/bench_commands.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

void print_forward_ad_row(const nlohmann::json& row) {
  std::printf("%-32s %-22s %-24s", row["name"].get<std::string>().c_str(),
              row["ours"].get<std::string>().c_str(), row["other"].get<std::string>().c_str());
  if (row.contains("ours_us")) {
    std::printf("%11.1f %11.1f   %.3f [%.3f, %.3f]\n", row["ours_us"].get<double>(),
                row["other_us"].get<double>(), row["ratio"].get<double>(), row["ratio_lo"].get<double>(),
                row["ratio_hi"].get<double>());
  } else {
    std::printf("%9lld B %9lld B   %.3f\n", row["ours_bytes"].get<long long>(),
                row["other_bytes"].get<long long>(), row["ratio"].get<double>());
  }
  std::fflush(stdout);
}

int bench_forward_ad(const std::string& json, bench::ForwardAdBenchOptions options, int threads, bool quiet) {
  if (options.quick) options = {.pairs = 3, .sample_seconds = 0, .quick = true};
  JsonFile file(json);
  at::set_num_threads(threads);
  return report_rows("forward_ad", file, quiet, print_forward_ad_row,
                     [&](const OnRow& on_row) { bench::run_forward_ad_bench(options, on_row); });
}

}  // namespace

void add_bench_forward_ad(Program& program, CLI::App& parent) {
  struct Arguments {
    bench::ForwardAdBenchOptions options;
    std::string json;
    int threads = 1;
    bool quiet = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_to(
      parent, "forward_ad", "Time forward mode's drivers beside the other ways to the same numbers.",
      "overdrive bench forward_ad --json forward_ad.json", [arguments] {
        return bench_forward_ad(arguments->json, arguments->options, arguments->threads, arguments->quiet);
      });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--pairs", arguments->options.pairs, "Alternating pairs a comparison.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "Threads inside one operation.")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quick", arguments->options.quick, "Small sizes and few pairs: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
