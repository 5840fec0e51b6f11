#include "bench/memory_bench.h"

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

nlohmann::json measure(const GraphKind& kind, int64_t size) {
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

}  // namespace

void run_memory_bench(const MemoryBenchOptions& options,
                      const std::function<void(const nlohmann::json&)>& on_row) {
  for (const GraphKind& kind : graph_kinds()) {
    const auto& names = options.graphs;
    if (!names.empty() && std::find(names.begin(), names.end(), kind.name) == names.end()) continue;
    for (int64_t size : options.quick ? kind.quick_sizes : kind.sizes) {
      if (size <= options.max_size) on_row(measure(kind, size));
    }
  }
}

}  // namespace overdrive::bench
