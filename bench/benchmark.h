// What a benchmark is to the program that runs it: a name, what may be asked of it, how its rows look, and the
// measurement. Each file NAME_bench.cpp answers one question and describes itself by one such object;
// benchmarks.cpp lists them. A measurement runs on the calling thread, one at a time, and prints nothing.
#pragma once

#include "bench/support/text.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace overdrive::bench {

struct GraphKind;

struct Options {
  std::vector<std::string> graphs;  // names from graph_kinds(); empty: all of them
  int64_t max_size = INT64_MAX;     // leaves out larger graphs
  std::vector<std::string> types;   // names from Benchmark::types; empty: all of them
  int rounds = 30;                  // alternating pairs or rounds a row
  int lanes = 2;                    // of a replay, beside one
  bool quick = false;               // small sizes, few rounds: to see that it works
  std::vector<std::string> models;  // that `overdrive bench faults` knows
  std::set<std::string> flags;      // those of Benchmark::flags that are set
  // Called where a measurement may end early; throws when it is to.
  std::function<void()> check_stop = [] {};

  // Graphs and sizes that are wanted, in order.
  void for_each_graph(const std::function<void(const GraphKind& kind, int64_t size)>& call) const;
};

// Takes a row (a JSON object) as soon as it is measured, into the list of this name in the JSON file. A row
// with `above_stock`: true is a failure.
using Report = std::function<void(const nlohmann::json& row, const std::string& list)>;
using OnRow = std::function<void(const nlohmann::json& row)>;

// How the rows of one list are shown: the line above them, and each.
struct RowsAsText {
  std::string list = "rows";
  std::string head = {};
  std::string (*text)(const nlohmann::json& row) = nullptr;
};

struct Benchmark {
  std::string name;  // `overdrive bench NAME`
  std::string what;
  std::vector<RowsAsText> lists;
  std::function<void(const Options& options, const Report& report)> measure;

  // What it can be asked, besides --quick.
  bool takes_graphs = false;            // --graph, --max-size
  bool takes_threads = false;           // --threads; else one thread
  bool takes_lanes = false;             // --lanes
  std::vector<std::string> types = {};  // --type, one of these
  std::string rounds = "--pairs";
  struct Flag {
    std::string name, what;
  };
  std::vector<Flag> flags = {};
};

// The measurement of a benchmark whose rows are one list.
inline auto measured_by(void (*measure)(const Options&, const OnRow&)) {
  return [measure](const Options& options, const Report& report) {
    measure(options, [&](const nlohmann::json& row) { report(row, "rows"); });
  };
}

// Figures of a row as text.
inline std::string cell(const nlohmann::json& row, const char* name, const char* pattern = "%.3f") {
  return row[name].is_string() ? row[name].get<std::string>() : format(pattern, row[name].get<double>());
}
inline std::string ratio_of(const nlohmann::json& row) {
  return with_interval(row["ratio"], row["ratio_lo"], row["ratio_hi"]);
}

// All of them; a new one is a file and a line in benchmarks.cpp.
const std::vector<Benchmark>& benchmarks();

// A row of `bench engine` and `bench devices`. A sample repeats its run for `sample_seconds` and takes the
// median.
nlohmann::json measure_graph(const GraphKind& kind, int64_t size, int pairs, double sample_seconds);

// Page faults, peak and processor time of a training step on each of `engines`; `tuned_stock` is stock with
// Overdrive's memory settings. ENGINE_{faults,peak_kib,milliseconds,keep_memory_bytes}.
nlohmann::json measure_page_faults(const std::string& model, int64_t steps,
                                   const std::vector<std::string>& engines,
                                   const std::function<void()>& check_stop);

// What a training step of two nets holds under each packer of saved tensors: net, packer, saved_bytes after the
// forward, peak_bytes of the step, both also relative to the same net without hooks; and when `timed` ms,
// ms_ratio, added_ms.
void hooked_steps(const Options& options, bool timed, const OnRow& on_row);

}  // namespace overdrive::bench
