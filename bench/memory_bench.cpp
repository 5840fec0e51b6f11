// Does a backward on our engine ever hold more memory than on stock? Bytes, not time: the most alive at once
// during one backward, tensors and everything else apart.
#include "bench/benchmark.h"
#include "bench/engine_switch.h"
#include "bench/graph.h"
#include "bench/memory_counter.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

namespace overdrive::bench {

namespace {

// Runs `call` on a thread of its own, so that tables which an engine keeps per thread are counted as its
// memory.
template <typename Call>
void on_fresh_thread(Call&& call) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

// A graph that is built for the occasion and consumed by it, as in training.
MemoryPeak peak_of(EngineKind engine_kind, const GraphKind& kind, int64_t size) {
  const UseEngine engine(engine_kind);
  MemoryPeak peak;
  on_fresh_thread([&] {
    Graph graph = kind.build(size);
    graph.keep_graph = false;
    graph.prepare();
    const MemoryCounter memory;
    graph.run();
    peak = memory.peak();
  });
  return peak;
}

nlohmann::json measure_memory(const GraphKind& kind, int64_t size) {
  // What LibTorch allocates once in a process belongs to neither.
  peak_of(EngineKind::kStock, kind, size);
  peak_of(EngineKind::kOverdrive, kind, size);
  const MemoryPeak stock = peak_of(EngineKind::kStock, kind, size);
  const MemoryPeak ours = peak_of(EngineKind::kOverdrive, kind, size);
  return {
      {"graph", kind.name},
      {"size", size},
      {"nodes", kind.build(size).nodes()},
      {"stock_tensor_peak_bytes", stock.tensor_bytes},
      {"overdrive_tensor_peak_bytes", ours.tensor_bytes},
      {"stock_heap_peak_bytes", stock.heap_bytes},
      {"overdrive_heap_peak_bytes", ours.heap_bytes},
      {"stock_peak_bytes", stock.total()},
      {"overdrive_peak_bytes", ours.total()},
      {"stock_kept_bytes", stock.kept_bytes},
      {"overdrive_kept_bytes", ours.kept_bytes},
      {"stock_allocations", stock.heap_allocations},
      {"overdrive_allocations", ours.heap_allocations},
      {"ratio", static_cast<double>(ours.total()) / static_cast<double>(std::max<int64_t>(stock.total(), 1))},
      {"above_stock", ours.total() > stock.total()}};
}

void memory_bench(const Options& options, const Report& report) {
  const auto into = [&](const char* list) {
    return [&report, list](const nlohmann::json& row) { report(row, list); };
  };
  if (!options.flags.contains("--packers")) {
    options.for_each_graph(
        [&](const GraphKind& kind, int64_t size) { report(measure_memory(kind, size), "rows"); });
  }
  if (options.graphs.empty()) hooked_steps(options, /*timed=*/false, into("packers"));
  if (!options.graphs.empty() || options.flags.contains("--packers")) return;
  // What a heap gives back to the system between steps, and faults in again.
  for (const std::string& model : options.quick ? std::vector<std::string>{"mlp"} : options.models)
    report(measure_page_faults(model, options.quick ? 4 : 20, {"stock", "tuned_stock", "overdrive"},
                               options.check_stop),
           "faults");
}

const TextTable& graphs_table() {
  static const TextTable columns({{"graph", -14},
                                  {"size", 9},
                                  {"stock tens.", 12},
                                  {"our tens.", 12},
                                  {"stock heap", 12},
                                  {"our heap", 12},
                                  {"we keep", 12},
                                  {"ratio", 7},
                                  {"", 1}});
  return columns;
}

std::string graph_row(const nlohmann::json& row) {
  const auto bytes = [&](const char* name) { return cell(row, name, "%.0f"); };
  return graphs_table().row({row["graph"], bytes("size"), bytes("stock_tensor_peak_bytes"),
                             bytes("overdrive_tensor_peak_bytes"), bytes("stock_heap_peak_bytes"),
                             bytes("overdrive_heap_peak_bytes"), bytes("overdrive_kept_bytes"),
                             cell(row, "ratio"), row["above_stock"].get<bool>() ? " ABOVE STOCK" : ""});
}

const TextTable& packers_table() {
  static const TextTable columns(
      {{"net", -12}, {"packer", -30}, {"saved", 14}, {"", 7}, {"peak", 14}, {"", 7}});
  return columns;
}

std::string packer_row(const nlohmann::json& row) {
  return packers_table().row({row["net"], row["packer"], cell(row, "saved_bytes", "%.0f"),
                              cell(row, "saved_ratio"), cell(row, "peak_bytes", "%.0f"),
                              cell(row, "peak_ratio")});
}

const TextTable& faults_table() {
  static const TextTable columns({{"model", -20},
                                  {"stock faults", 12},
                                  {"our faults", 12},
                                  {"stock peak KiB", 14},
                                  {"our peak KiB", 14},
                                  {"tuning alone", 12}});
  return columns;
}

std::string faults_row(const nlohmann::json& row) {
  const double alone = row["tuned_stock_milliseconds"].get<double>() / row["stock_milliseconds"].get<double>();
  return faults_table().row({row["model"], cell(row, "stock_faults", "%.1f"),
                             cell(row, "overdrive_faults", "%.1f"), cell(row, "stock_peak_kib", "%.0f"),
                             cell(row, "overdrive_peak_kib", "%.0f"), format("%.3f", alone)});
}

}  // namespace

Benchmark memory_benchmark() {
  return {
      .name = "memory",
      .what =
          "Count the bytes that a backward holds: stock and Overdrive, and a step under each packer of saved "
          "tensors.",
      .lists = {{.head = graphs_table().head(), .text = graph_row},
                {.list = "packers", .head = packers_table().head(), .text = packer_row},
                {.list = "faults", .head = faults_table().head(), .text = faults_row}},
      .measure = memory_bench,
      .takes_graphs = true,
      .rounds = "",
      .flags = {{"--packers", "Only the step under each packer."}}};
}

}  // namespace overdrive::bench
