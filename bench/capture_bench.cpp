#include "bench/benchmark.h"
#include "bench/capture_models.h"
#include "bench/statistics.h"
#include "engine/engine.h"
#include "replay/captured.h"
#include "replay/replay.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

namespace overdrive::bench {

namespace {

using Tensors = std::vector<at::Tensor>;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Call>
double microseconds_of(int calls, const Call& call) {
  const double begin = thread_seconds();
  for (int i = 0; i < calls; ++i) call();
  return (thread_seconds() - begin) * 1e6 / calls;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
    return x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  });
}

// The same model five times, each with its own way of making a step.
struct Contest {
  explicit Contest(const CaptureModelKind& kind)
      : stock(made(kind)),
        ours(made(kind)),
        captured(made(kind)),
        plain(made(kind)),
        parts(made(kind)),
        loss([this](const Tensors& inputs) { return Tensors{parts.loss_of(inputs)}; },
             {.constant_modes = true, .always = true}, true),
        update(*parts.optimizer, {.always = true}),
        step([this](const Tensors& inputs) { return Tensors{captured.step(inputs)}; },
             {.optimizer = captured.optimizer.get(), .constant_modes = true, .always = true}),
        step_without_passes(
            [this](const Tensors& inputs) { return Tensors{plain.step(inputs)}; },
            {.optimizer = plain.optimizer.get(), .constant_modes = true, .passes = false, .always = true}) {}

  static CaptureModel made(const CaptureModelKind& kind) {
    torch::manual_seed(3);
    return kind.build();
  }

  // The loss and the update are parts, and the backward is the engine's.
  void step_by_parts() {
    update.zero_grad();
    loss.call(parts.inputs).at(0).backward();
    update.step();
  }

  CaptureModel stock, ours, captured, plain, parts;
  CapturedStep loss;
  CapturedOptimizer update;
  CapturedStep step, step_without_passes;
};

nlohmann::json row_of(const CaptureModelKind& kind, const Options& options) {
  Contest contest(kind);
  uninstall();
  at::Tensor stock_loss, captured_loss;
  const auto stock = [&] { stock_loss = contest.stock.step(contest.stock.inputs); };
  const auto ours = [&] { contest.ours.step(contest.ours.inputs); };
  const auto captured = [&] { captured_loss = contest.step.call(contest.captured.inputs).at(0); };
  const auto without_passes = [&] { contest.step_without_passes.call(contest.plain.inputs); };
  const auto by_parts = [&] { contest.step_by_parts(); };
  for (int i = 0; i < 6; ++i) stock(), ours(), captured(), without_passes(), by_parts();
  const int rounds = options.quick ? 2 : options.rounds;
  const int calls = options.quick ? 2 : std::max(2, static_cast<int>(20'000 / microseconds_of(4, stock)));
  if (!options.quick)
    microseconds_of(4, captured), microseconds_of(4, ours), microseconds_of(4, by_parts),
        microseconds_of(4, without_passes);
  std::vector<double> of_stock, of_ours, of_captured, of_plain, of_parts, ratios, ratios_of_parts;
  for (int round = 0; round < rounds; ++round) {
    of_stock.push_back(microseconds_of(calls, stock));
    install();
    of_ours.push_back(microseconds_of(calls, ours));
    uninstall();
    of_captured.push_back(microseconds_of(calls, captured));
    of_plain.push_back(microseconds_of(calls, without_passes));
    of_parts.push_back(microseconds_of(calls, by_parts));
    ratios.push_back(of_captured.back() / of_stock.back());
    ratios_of_parts.push_back(of_parts.back() / of_stock.back());
  }
  // Every call looks at the guards; this looks at them and does nothing else.
  const std::vector<at::Tensor>& inputs = contest.captured.inputs;
  std::vector<double> of_guards;
  for (int round = 0; round < rounds; ++round) {
    of_guards.push_back(microseconds_of(options.quick ? 2 : 1000, [&] { contest.step.would_replay(inputs); }));
  }
  const Interval ratio = median_interval(ratios);
  return {
      {"model", kind.name},
      {"stock_us", median(of_stock)},
      {"overdrive_us", median(of_ours)},
      {"captured_us", median(of_captured)},
      {"without_passes_us", median(of_plain)},
      {"guards_us", median(of_guards)},
      {"parts_us", median(of_parts)},
      {"parts_ratio", median(ratios_of_parts)},
      {"parts_replayed", contest.loss.stats().backwards > 0},
      {"parts_refusal", contest.loss.refusal() + contest.update.update().refusal()},
      {"ratio", ratio.middle},
      {"ratio_lo", ratio.lo},
      {"ratio_hi", ratio.hi},
      {"replayed", contest.step.stats().replayed > 0},
      {"refusal", contest.step.refusal()},
      {"same_bits", same_bits(contest.stock.parameters, contest.captured.parameters) &&
                        same_bits(contest.stock.parameters, contest.plain.parameters) &&
                        same_bits(contest.stock.parameters, contest.parts.parameters) &&
                        same_bits({stock_loss.detach()}, {captured_loss})},
  };
}

// A row for each model: stock_us, overdrive_us, captured_us, the same without passes, guards_us; ratio of
// captured to stock with its interval; parts_us, parts_ratio for loss and update as parts; replayed, refusal,
// same_bits (of parameters and the last loss).
void capture_bench(const Options& options, const OnRow& on_row) {
  const bool was_installed = installed();
  for (const CaptureModelKind& kind : capture_models()) {
    if (!options.types.empty() &&
        std::find(options.types.begin(), options.types.end(), kind.name) == options.types.end()) {
      continue;
    }
    if (options.quick && options.types.empty() && &kind != &capture_models().front()) break;
    on_row(row_of(kind, options));
    options.check_stop();
  }
  if (was_installed) install();
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const CaptureModelKind& kind : capture_models()) result.push_back(kind.name);
  return result;
}

const TextTable& capture_table() {
  static const TextTable columns({{"model", -14},
                                  {"stock us", 10},
                                  {"overdrive us", 12},
                                  {"captured us", 11},
                                  {"no passes", 10},
                                  {"guards us", 9},
                                  {"parts us", 9},
                                  {"by stock", 9},
                                  {"  captured by stock [95 %]", -26},
                                  {"", 0}});
  return columns;
}

std::string row_as_text(const nlohmann::json& row) {
  const std::string bits = row["same_bits"].get<bool>() ? "same bits" : "OTHER BITS";
  return capture_table().row(
      {row["model"], cell(row, "stock_us", "%.1f"), cell(row, "overdrive_us", "%.1f"),
       cell(row, "captured_us", "%.1f"), cell(row, "without_passes_us", "%.1f"), cell(row, "guards_us", "%.2f"),
       cell(row, "parts_us", "%.1f"),
       row["parts_replayed"].get<bool>() ? cell(row, "parts_ratio", "%.3f") : "-", "  " + ratio_of(row),
       row["replayed"].get<bool>() ? bits : bits + ", not replayed: " + row["refusal"].get<std::string>()});
}

}  // namespace

Benchmark capture_benchmark() {
  return {.name = "capture",
          .what = "Time captured training steps beside eager ones: microseconds of the thread, whole steps.",
          .lists = {{.head = capture_table().head(), .text = row_as_text}},
          .measure = measured_by(capture_bench),
          .types = names(),
          .rounds = "--rounds"};
}

}  // namespace overdrive::bench
