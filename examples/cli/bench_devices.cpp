// `overdrive bench devices`: graphs over the devices of an accelerator that does not exist, stock and ours.
#include "bench/device_graphs.h"
#include "examples/cli/app_run.h"
#include "examples/cli/bench_commands.h"
#include "examples/harness/progress.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

struct DevicesArguments {
  std::string json;
  int pairs = 30;
  bool quick = false;
  bool quiet = false;
};

void print_devices_row(const nlohmann::json& row) {
  const auto number = [&](const char* name) { return row[name].get<double>(); };
  std::printf("%-17s %6lld %10.0f %10.0f   %.3f [%.3f, %.3f] %9.2f %9.2f",
              row["graph"].get<std::string>().c_str(), row["size"].get<long long>(),
              number("stock_ns_per_node"), number("overdrive_ns_per_node"), number("ratio"), number("ratio_lo"),
              number("ratio_hi"), number("stock_switches"), number("overdrive_switches"));
  if (row.contains("bare_hand_over_ns")) std::printf("   bare hand-over %.0f ns", number("bare_hand_over_ns"));
  std::printf("\n");
  std::fflush(stdout);
}

void print_devices_head() {
  std::printf("%-17s %6s %10s %10s   %-22s %9s %9s\n", "graph", "size", "stock ns", "overdrive", "ratio [95 %]",
              "switches:", "ours");
  std::fflush(stdout);
}

// The fake accelerator cannot be unregistered, so what has it is another program, beside this one.
std::string devices_program() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "overdrive_devices_bench";
  if (!std::filesystem::exists(path)) {
    throw UsageError("the program " + path.string() +
                     " is not there; it belongs to builds with benchmarks and tests.");
  }
  return path.string();
}

nlohmann::json measure_kind(const std::string& program, const std::string& kind,
                            const DevicesArguments& arguments) {
  std::vector<std::string> call{program, kind, std::to_string(arguments.quick ? 3 : arguments.pairs),
                                arguments.quick ? "0" : "0.02"};
  if (arguments.quick) call.emplace_back("--quick");
  const AppRun run = run_app(call, {});
  check_interrupt();  // a terminal sends Ctrl-C to that program, too
  if (run.status != 0) {
    throw UsageError("measuring \"" + kind + "\" ended with status " + std::to_string(run.status) + ": " +
                     run.err);
  }
  return nlohmann::json::parse(run.out);
}

int bench_devices(const DevicesArguments& arguments) {
  JsonFile file(arguments.json);
  const std::string program = devices_program();
  return report_rows("devices", file, arguments.quiet, print_devices_row, [&](const OnRow& on_row) {
    if (!arguments.quiet) print_devices_head();
    for (const bench::GraphKind& kind : bench::device_graph_kinds()) {
      for (const nlohmann::json& row : measure_kind(program, kind.name, arguments)) on_row(row);
    }
  });
}

}  // namespace

void add_bench_devices(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<DevicesArguments>();
  CLI::App* command = program.add_to(
      parent, "devices",
      "Time backwards over the devices of an accelerator without kernels: stock and Overdrive.",
      "overdrive bench devices --json devices.json", [arguments] { return bench_devices(*arguments); });
  command->add_option("--json", arguments->json, "Write the rows to this file.");
  command->add_option("--pairs", arguments->pairs, "Alternating pairs a graph.")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_flag("--quick", arguments->quick, "Small graphs and few pairs: to see that it works.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
