// Question: what does it cost to run a graph over devices? overdrive_devices_bench GRAPH PAIRS SECONDS
// [--quick] prints one JSON array of rows. A program of its own, because the fake accelerator that it is linked
// with cannot be unregistered, and each graph in a process of its own, so that no measurement inherits threads.
// Which engine comes first does not matter: the host's threads belong to the host's engine either way, since
// ours asks it to start them (docs/threading.md), and ours end whenever stock's turn comes.
#include "bench/benchmark.h"
#include "bench/device_graphs.h"
#include "bench/engine_switch.h"
#include "bench/hand_over.h"
#include "bench/process_usage.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace overdrive::bench {
namespace {

// Voluntary switches of all threads, a backward.
double switches(EngineKind engine, const GraphKind& kind, int64_t size) {
  constexpr int kRuns = 200;
  const UseEngine use(engine);
  Graph graph = kind.build(size);
  for (int i = 0; i < graph.runs_to_warm_up; ++i) graph.run();
  const int64_t before = process_usage().waits;
  for (int i = 0; i < kRuns; ++i) graph.run();
  return static_cast<double>(process_usage().waits - before) / kRuns;
}

nlohmann::json measure(const GraphKind& kind, int pairs, double seconds, bool quick) {
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t size : quick ? kind.quick_sizes : kind.sizes) {
    nlohmann::json row = measure_graph(kind, size, pairs, seconds);
    row["stock_switches"] = switches(EngineKind::kStock, kind, size);
    row["overdrive_switches"] = switches(EngineKind::kOverdrive, kind, size);
    if (kind.name == "ping_pong") row["bare_hand_over_ns"] = bare_hand_over_ns(pairs);
    rows.push_back(std::move(row));
  }
  return rows;
}

int run(int argc, char** argv) {
  const bool quick = argc == 5 && std::strcmp(argv[4], "--quick") == 0;
  if (argc != 4 && !quick) {
    std::fprintf(stderr, "usage: overdrive_devices_bench GRAPH PAIRS SECONDS [--quick]\n");
    return 2;
  }
  at::set_num_threads(1);
  for (const GraphKind& kind : device_graph_kinds()) {
    if (kind.name != argv[1]) continue;
    std::printf("%s\n", measure(kind, std::atoi(argv[2]), std::atof(argv[3]), quick).dump().c_str());
    return 0;
  }
  std::fprintf(stderr, "there is no graph \"%s\"\n", argv[1]);
  return 2;
}

}  // namespace
}  // namespace overdrive::bench

int main(int argc, char** argv) { return overdrive::bench::run(argc, argv); }
