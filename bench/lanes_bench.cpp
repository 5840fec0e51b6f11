#include "bench/benchmark.h"
#include "bench/capture_models.h"
#include "bench/timing.h"
#include "replay/lanes/lane_trial.h"
#include "replay/replay.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

namespace overdrive::bench {

namespace {

using Tensors = std::vector<at::Tensor>;

// In a row on each side: on a busy machine the system needs some milliseconds until two threads have a
// processor each.
constexpr int kCalls = 100;

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
    return x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  });
}

// A model and its captured step. The function holds the address of the model.
struct Side {
  Side(const CaptureModelKind& kind, int lanes)
      : model(made(kind)),
        step([this](const Tensors& inputs) { return Tensors{model.step(inputs)}; },
             {.optimizer = model.optimizer.get(), .constant_modes = true, .lanes = lanes, .always = true}) {}
  static CaptureModel made(const CaptureModelKind& kind) {
    torch::manual_seed(3);
    return kind.build();
  }
  void call() { step.call(model.inputs); }

  CaptureModel model;
  CapturedStep step;
};

// The best of some calls, one by one: another program that takes a processor costs a call, not the figure.
void keep_best(double& best, int calls, const Call& call) {
  for (int i = 0; i < calls; ++i) best = std::min(best, 1e6 * seconds_of(call));
}

// Work for a processor and nothing else.
void spin() {
  volatile uint64_t sum = 0;
  for (int i = 0; i < 300'000; ++i) sum = sum + static_cast<uint64_t>(i);
}

// How long `count` threads spin that begin together, by one alone: 1 where each has a processor, `count` on
// one.
double control(int rounds, int count) {
  double one = std::numeric_limits<double>::max(), all = one;
  for (int i = 0; i < rounds; ++i) {
    one = std::min(one, seconds_of(spin));
    std::atomic<int> here{0};
    std::vector<double> seconds(static_cast<size_t>(count));
    const auto spin_with_the_others = [&](double& own) {
      for (++here; here.load() < count;) {
      }
      own = seconds_of(spin);
    };
    std::vector<std::thread> others;
    for (size_t k = 1; k < seconds.size(); ++k) {
      others.emplace_back([&, k] { spin_with_the_others(seconds[k]); });
    }
    spin_with_the_others(seconds[0]);
    for (std::thread& other : others) other.join();
    all = std::min(all, *std::max_element(seconds.begin(), seconds.end()));
  }
  return all / one;
}

nlohmann::json row_of(const CaptureModelKind& kind, const Options& options) {
  at::set_num_threads(1);
  const int calls = options.quick ? 4 : kCalls;
  Side one(kind, 1), lanes(kind, options.lanes), threads(kind, 1);
  for (int i = 0; i < 30; ++i) one.call(), lanes.call();
  at::set_num_threads(options.lanes);
  for (int i = 0; i < 12; ++i) threads.call();
  double best_of_one = std::numeric_limits<double>::max(), best_of_lanes = best_of_one,
         best_of_threads = best_of_one;
  const int rounds = options.quick ? 2 : options.rounds;
  for (int round = 0; round < rounds; ++round) {
    at::set_num_threads(1);
    keep_best(best_of_one, calls, [&] { one.call(); });
    keep_best(best_of_lanes, calls, [&] { lanes.call(); });
    at::set_num_threads(options.lanes);
    keep_best(best_of_threads, calls, [&] { threads.call(); });
    options.check_stop();
  }
  at::set_num_threads(1);
  const std::string text = lanes.step.explain();
  const size_t line = text.find("lanes: ");
  return {{"model", kind.name},
          {"lanes", options.lanes},
          {"one_us", best_of_one},
          {"lanes_us", best_of_lanes},
          {"threads_us", best_of_threads},
          {"ratio", best_of_lanes / best_of_one},
          {"threads_ratio", best_of_threads / best_of_one},
          {"control", control(rounds, options.lanes)},
          {"replayed", lanes.step.stats().replayed > 0},
          {"same_bits", same_bits(one.model.parameters, lanes.model.parameters)},
          {"schedule", line == std::string::npos ? "" : text.substr(line, text.find('\n', line) - line)}};
}

// A row for each model: one_us, lanes_us, threads_us, the best of many calls on one lane, on several, and on
// one with as many threads of LibTorch; their ratios to one lane; control; same_bits of the parameters;
// schedule as explain() says it.
void lanes_bench(const Options& options, const OnRow& on_row) {
  const int threads = at::get_num_threads();
  // The schedule is used where it promises enough: whether it is faster is the question.
  replay::try_lanes({.is_trusted = true});
  for (const CaptureModelKind& kind : models_for_lanes()) {
    if (!options.types.empty() &&
        std::find(options.types.begin(), options.types.end(), kind.name) == options.types.end()) {
      continue;
    }
    if (options.quick && options.types.empty() && &kind != &models_for_lanes().front()) break;
    on_row(row_of(kind, options));
  }
  replay::try_lanes({});
  at::set_num_threads(threads);
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const CaptureModelKind& kind : models_for_lanes()) result.push_back(kind.name);
  return result;
}

const TextTable& lanes_table() {
  static const TextTable columns({{"model", -14},
                                  {"one lane us", 12},
                                  {"lanes", 10},
                                  {"threads", 12},
                                  {"lanes by one", 13},
                                  {"control", 8},
                                  {"", 0}});
  return columns;
}

std::string row_as_text(const nlohmann::json& row) {
  return lanes_table().row({row["model"], cell(row, "one_us", "%.1f"), cell(row, "lanes_us", "%.1f"),
                            cell(row, "threads_us", "%.1f"), cell(row, "ratio", "%.3f"),
                            cell(row, "control", "%.2f"),
                            row["same_bits"].get<bool>() ? "  same bits" : "  OTHER BITS"});
}

}  // namespace

Benchmark lanes_benchmark() {
  return {
      .name = "lanes",
      .what =
          "Time captured steps on several lanes beside one: microseconds of the wall, the best of many calls.",
      .lists = {{.head = lanes_table().head(), .text = row_as_text}},
      .measure = measured_by(lanes_bench),
      .takes_lanes = true,
      .types = names(),
      .rounds = "--rounds"};
}

}  // namespace overdrive::bench
