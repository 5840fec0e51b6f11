// `overdrive bench WHAT`: measures stock and ours in one process and prints a row as each is done.
#include "bench/benchmark.h"
#include "bench/environment.h"
#include "bench/graph.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace overdrive::cli {

namespace {

using bench::Benchmark;

struct BenchCall {
  bench::Options options;
  int threads = 1;
  Output output;
};

void check_graph_names(const std::vector<std::string>& names) {
  const auto& kinds = bench::graph_kinds();
  for (const std::string& name : names) {
    const bool known =
        std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.name == name; });
    if (!known) throw UsageError("there is no graph \"" + name + "\"; `overdrive list` names them.");
  }
}

// A text that has no end of line would run into the next one.
const std::string& whole_lines(const std::string& text) {
  TORCH_INTERNAL_ASSERT(text.empty() || text.back() == '\n', "no whole line: ", text);
  return text;
}

int run_bench(const Benchmark& bench, BenchCall call) {
  check_graph_names(call.options.graphs);
  const JsonFile file(call.output.json);
  at::set_num_threads(call.threads);
  call.options.check_stop = harness::check_interrupt;
  call.options.models = models_of_bench_faults();
  nlohmann::json document = {{"benchmark", bench.name}};
  for (const auto& rows : bench.lists) document[rows.list] = nlohmann::json::array();
  bool above_stock = false;
  std::string shown;  // the list whose head was printed last
  harness::run_until_interrupt([&] {
    bench.measure(call.options, [&](const nlohmann::json& row, const std::string& list) {
      const auto rows =
          std::find_if(bench.lists.begin(), bench.lists.end(), [&](const auto& l) { return l.list == list; });
      if (shown != list) call.output.print((shown.empty() ? "" : "\n") + whole_lines(rows->head));
      shown = list;
      call.output.print(whole_lines(rows->text(row)));
      above_stock |= row.value("above_stock", false);
      document[list].push_back(row);
      harness::check_interrupt();
    });
  });
  document["environment"] = bench::environment();
  document["stopped"] = interrupted();
  file.write(document);
  return harness::ending(above_stock);
}

void add_one(Program& program, CLI::App& parent, const Benchmark& bench) {
  auto call = std::make_shared<BenchCall>();
  CLI::App* command = program.add(parent, bench.name, bench.what,
                                  "overdrive bench " + bench.name + " --json " + bench.name + ".json",
                                  [call, &bench] { return run_bench(bench, *call); });
  if (bench.takes_graphs) {
    command->add_option("--graph", call->options.graphs, "Only these graphs (repeat or list them).");
    command->add_option("--max-size", call->options.max_size, "Leave out graphs of a larger size.")
        ->check(above_zero());
  }
  if (!bench.types.empty()) {
    command->add_option("--type", call->options.types, "Only these types (repeat or list them).")
        ->check(CLI::IsMember(bench.types));
  }
  if (!bench.rounds.empty()) {
    option(*command, bench.rounds, call->options.rounds, "Alternating samples of each side, a row.",
           CLI::Range(1, 100'000));
  }
  if (bench.takes_threads) {
    option(*command, "--threads", call->threads, "Threads inside one operation.", CLI::Range(1, 1024));
  }
  if (bench.takes_lanes) {
    option(*command, "--lanes", call->options.lanes, "Lanes, and threads of LibTorch's own, beside one.",
           CLI::Range(2, 64));
  }
  for (const auto& flag : bench.flags) {
    command->add_flag_function(
        flag.name, [call, &flag](int64_t) { call->options.flags.insert(flag.name); }, flag.what);
  }
  command->add_flag("--quick", call->options.quick, "Small sizes and few rounds: to see that it works.");
  call->output.add_to(*command);
}

}  // namespace

void add_bench(Program& program) {
  CLI::App* command = program.add(program.app, "bench", "Measure stock and Overdrive side by side.",
                                  "overdrive bench engine --quick", nullptr);
  for (const Benchmark& bench : bench::benchmarks()) add_one(program, *command, bench);
  add_bench_faults(program, *command);
}

}  // namespace overdrive::cli
