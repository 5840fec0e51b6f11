#include "bench/google_bench.h"

#include "bench/engine_switch.h"
#include "bench/graph.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>

namespace overdrive::bench {
namespace {

void time_graph(benchmark::State& state, EngineKind engine, const GraphKind& kind) {
  at::set_num_threads(1);
  UseEngine use(engine);
  Graph graph = kind.build(state.range(0));
  const int64_t nodes = graph.nodes();
  for (auto _ : state) {
    state.PauseTiming();
    graph.prepare();
    state.ResumeTiming();
    graph.run();
  }
  state.SetItemsProcessed(state.iterations() * nodes);
}

}  // namespace

int run_graphs(int argc, char** argv, const std::vector<std::string>& names) {
  for (const GraphKind& kind : graph_kinds()) {
    if (std::find(names.begin(), names.end(), kind.name) == names.end()) continue;
    for (EngineKind engine : {EngineKind::kStock, EngineKind::kOverdrive}) {
      auto* timed = benchmark::RegisterBenchmark(
          (kind.name + "/" + name(engine)).c_str(),
          [engine, &kind](benchmark::State& state) { time_graph(state, engine, kind); });
      for (int64_t size : kind.sizes) timed->Arg(size);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace overdrive::bench
