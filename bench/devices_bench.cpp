// What does it cost to run a graph over devices? Each graph in a process of its own: the fake accelerator
// cannot be unregistered, so overdrive_devices_bench has it, beside this program.
#include "bench/benchmark.h"
#include "bench/device_graphs.h"
#include "bench/support/program_run.h"

#include <filesystem>

namespace overdrive::bench {
namespace {

std::string devices_program() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "overdrive_devices_bench";
  TORCH_CHECK(std::filesystem::exists(path), "the program ", path.string(),
              " is not there; it belongs to builds with benchmarks and tests.");
  return path.string();
}

void devices_bench(const Options& options, const OnRow& on_row) {
  const std::string program = devices_program();
  for (const GraphKind& kind : device_graph_kinds()) {
    std::vector<std::string> call{program, kind.name, std::to_string(options.quick ? 3 : options.rounds),
                                  options.quick ? "0" : "0.02"};
    if (options.quick) call.emplace_back("--quick");
    const ProgramRun run = run_program({.arguments = call});
    options.check_stop();  // a terminal sends Ctrl-C to that program, too
    TORCH_CHECK(run.status == 0, "measuring \"", kind.name, "\" ended with status ", run.status, ": ", run.err);
    for (const nlohmann::json& row : nlohmann::json::parse(run.out)) on_row(row);
  }
}

const TextTable& devices_table() {
  static const TextTable columns({{"graph", -17},
                                  {"size", 6},
                                  {"stock ns", 10},
                                  {"overdrive", 10},
                                  {"  ratio [95 %]", -24},
                                  {"switches:", 9},
                                  {"ours", 9},
                                  {"", 1}});
  return columns;
}

std::string devices_row(const nlohmann::json& row) {
  const bool bare = row.contains("bare_hand_over_ns");
  return devices_table().row({row["graph"], cell(row, "size", "%.0f"), cell(row, "stock_ns_per_node", "%.0f"),
                              cell(row, "overdrive_ns_per_node", "%.0f"), "  " + ratio_of(row),
                              cell(row, "stock_switches", "%.2f"), cell(row, "overdrive_switches", "%.2f"),
                              bare ? "  bare hand-over " + cell(row, "bare_hand_over_ns", "%.0f ns") : ""});
}

}  // namespace

Benchmark devices_benchmark() {
  return {.name = "devices",
          .what = "Time backwards over the devices of an accelerator without kernels: stock and Overdrive.",
          .lists = {{.head = devices_table().head(), .text = devices_row}},
          .measure = measured_by(devices_bench)};
}

}  // namespace overdrive::bench
