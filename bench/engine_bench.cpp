// What does a backward cost per node beyond the nodes themselves? Stock, ours and the oracle on the same graph
// in one process, in alternating pairs.
#include "bench/benchmark.h"
#include "bench/engine_switch.h"
#include "bench/graph.h"
#include "bench/instructions.h"
#include "bench/replay.h"
#include "bench/statistics.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace overdrive::bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of `runs` runs in seconds: one that was preempted does not count. What prepares a run
// is not in it.
template <typename Run>
double time_runs(Graph& graph, int runs, Run&& run) {
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    graph.prepare();
    seconds.push_back(run());
  }
  return median(std::move(seconds));
}

// The engine that runs `graph`, for as long as it lives. One whose threads are to live on is not installed in
// the place of the other, but called beside it.
class RunsOn {
 public:
  RunsOn(EngineKind kind, Graph& graph)
      : graph_(graph), use_(graph.threads_live_on ? EngineKind::kOverdrive : kind) {
    if (kind == EngineKind::kStock && graph.threads_live_on) graph.engine = &base::Engine::get_base_engine();
  }
  ~RunsOn() { graph_.engine = nullptr; }
  RunsOn(const RunsOn&) = delete;
  RunsOn& operator=(const RunsOn&) = delete;

 private:
  Graph& graph_;
  const UseEngine use_;
};

double time_engine(EngineKind kind, Graph& graph, int runs) {
  const RunsOn engine(kind, graph);
  for (int i = 0; i < graph.runs_to_warm_up; ++i) {
    graph.prepare();
    graph.run();
  }
  return time_runs(graph, runs, [&] {
    const auto start = Clock::now();
    graph.run();
    return seconds_since(start);
  });
}

// A graph that is built again for every run needs its replay planned again, too.
double time_by_hand(Graph& graph, int runs) {
  if (graph.set_by_hand) graph.set_by_hand(true);
  const double seconds = time_runs(graph, runs, [&] {
    Replay replay(graph);
    const auto start = Clock::now();
    replay.run();
    return seconds_since(start);
  });
  if (graph.set_by_hand) graph.set_by_hand(false);
  return seconds;
}

// How often a sample repeats its run. The quickest of a few tries tells, whatever else the machine does.
int runs_per_sample(Graph& graph, double sample_seconds) {
  constexpr double kMostRuns = 1000;
  double one = time_engine(EngineKind::kStock, graph, 1);
  for (int i = 0; i < 4; ++i) one = std::min(one, time_engine(EngineKind::kStock, graph, 1));
  return static_cast<int>(std::clamp(sample_seconds / one, 1.0, kMostRuns));
}

nlohmann::json instructions_per_node(EngineKind kind, Graph& graph, int64_t nodes) {
  InstructionCounter counter;
  const RunsOn engine(kind, graph);
  graph.prepare();
  const auto before = counter.read();
  graph.run();
  const auto after = counter.read();
  if (!before || !after) return nullptr;
  return static_cast<double>(*after - *before) / static_cast<double>(nodes);
}

struct Samples {
  std::vector<double> stock, overdrive, by_hand, ratios;
};

Samples measure_pairs(Graph& graph, int pairs, int runs) {
  Samples samples;
  for (int pair = 0; pair < pairs; ++pair) {
    // Who goes first alternates, so that a machine that slows down favours nobody.
    const bool stock_first = pair % 2 == 0;
    const auto first = stock_first ? EngineKind::kStock : EngineKind::kOverdrive;
    const auto second = stock_first ? EngineKind::kOverdrive : EngineKind::kStock;
    double seconds[2];
    seconds[static_cast<int>(first)] = time_engine(first, graph, runs);
    seconds[static_cast<int>(second)] = time_engine(second, graph, runs);
    samples.stock.push_back(seconds[0]);
    samples.overdrive.push_back(seconds[1]);
    samples.ratios.push_back(seconds[1] / seconds[0]);
    samples.by_hand.push_back(time_by_hand(graph, runs));
  }
  return samples;
}

}  // namespace

nlohmann::json measure_graph(const GraphKind& kind, int64_t size, int pairs, double sample_seconds) {
  Graph graph = kind.build(size);
  std::optional<UseEngine> ours;  // from the first sample to the last
  if (graph.threads_live_on) ours.emplace(EngineKind::kOverdrive);
  const int64_t nodes = graph.nodes();
  const int runs = runs_per_sample(graph, sample_seconds);
  const Samples samples = measure_pairs(graph, pairs, runs);
  const Interval ratio = median_interval(samples.ratios);
  auto ns_per_node = [&](const std::vector<double>& seconds) {
    return median(seconds) * 1e9 / static_cast<double>(nodes);
  };
  return {{"graph", kind.name},
          {"size", size},
          {"nodes", nodes},
          {"stock_ns_per_node", ns_per_node(samples.stock)},
          {"overdrive_ns_per_node", ns_per_node(samples.overdrive)},
          {"oracle_ns_per_node", ns_per_node(samples.by_hand)},
          {"ratio", ratio.middle},
          {"ratio_lo", ratio.lo},
          {"ratio_hi", ratio.hi},
          {"pairs", pairs},
          {"runs_per_sample", runs},
          {"stock_instructions_per_node", instructions_per_node(EngineKind::kStock, graph, nodes)},
          {"overdrive_instructions_per_node", instructions_per_node(EngineKind::kOverdrive, graph, nodes)}};
}

void Options::for_each_graph(const std::function<void(const GraphKind&, int64_t)>& call) const {
  for (const GraphKind& kind : graph_kinds()) {
    if (!graphs.empty() && std::find(graphs.begin(), graphs.end(), kind.name) == graphs.end()) continue;
    for (const int64_t size : quick ? kind.quick_sizes : kind.sizes) {
      if (size <= max_size) call(kind, size);
    }
  }
}

namespace {

void engine_bench(const Options& options, const OnRow& on_row) {
  constexpr double kSampleSeconds = 2e-2;
  const int pairs = options.quick ? std::min(options.rounds, 6) : options.rounds;
  options.for_each_graph([&](const GraphKind& kind, int64_t size) {
    on_row(measure_graph(kind, size, pairs, options.quick ? 0 : kSampleSeconds));
  });
}

const TextTable& engine_table() {
  static const TextTable columns({{"graph", -14},
                                  {"size", 9},
                                  {"nodes", 9},
                                  {"stock ns", 11},
                                  {"overdrive", 11},
                                  {"by hand", 11},
                                  {"  ratio [95 %]", 0}});
  return columns;
}

std::string engine_row(const nlohmann::json& row) {
  return engine_table().row({row["graph"], cell(row, "size", "%.0f"), cell(row, "nodes", "%.0f"),
                             cell(row, "stock_ns_per_node", "%.1f"), cell(row, "overdrive_ns_per_node", "%.1f"),
                             cell(row, "oracle_ns_per_node", "%.1f"), "  " + ratio_of(row)});
}

}  // namespace

Benchmark engine_benchmark() {
  return {.name = "engine",
          .what = "Time a backward per node: stock, Overdrive, by hand.",
          .lists = {{.head = engine_table().head(), .text = engine_row}},
          .measure = measured_by(engine_bench),
          .takes_graphs = true,
          .takes_threads = true};
}

}  // namespace overdrive::bench
