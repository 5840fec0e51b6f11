// What does a checkpointed region cost beyond its own recomputation, and what does it save? Each way beside the
// plain one.
#include "bench/benchmark.h"
#include "bench/statistics.h"
#include "bench/support/tensor_bytes.h"
#include "bench/timing.h"
#include "checkpoint/chain/sequential.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"

#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

namespace {

namespace ckpt = checkpoint;
using at::Tensor;

std::vector<std::vector<double>> timed(const Options& options, const std::vector<Call>& calls) {
  constexpr double kSampleSeconds = 5e-3;
  return time_in_turns(calls, options.quick ? 3 : options.rounds, options.quick ? 0 : kSampleSeconds);
}

nlohmann::json row(const char* name, const std::string& way, const Interval& figure, const char* unit,
                   const char* goal) {
  return {{"name", name}, {"way", way},  {"figure", figure.middle}, {"lo", figure.lo}, {"hi", figure.hi},
          {"unit", unit}, {"goal", goal}};
}

// What is left of a checkpointed step when the plain step and one more forward are taken off.
void cost_of_a_region(const Options& options, const OnRow& on_row) {
  const Tensor x = at::randn({64}).requires_grad_();
  const auto region = [](const Tensor& t) { return t.sin(); };
  const Tensor ones = at::ones({64});
  const auto step = [&](const Tensor& y) {
    x.mutable_grad() = Tensor();
    y.backward(ones);
  };
  const auto seconds = timed(options, {[&] { step(ckpt::checkpoint({.form = ckpt::Form::kEarly}, region, x)); },
                                       [&] { step(region(x)); }, [&] { region(x); }});
  std::vector<double> extra;
  for (size_t i = 0; i < seconds[0].size(); ++i) {
    extra.push_back((seconds[0][i] - seconds[1][i] - seconds[2][i]) * 1e6);
  }
  on_row(row("a region beyond its recomputation", "checkpoint()", median_interval(extra), "us", "<= 20"));
}

std::vector<ckpt::Layer> layers(int64_t count, int64_t width) {
  std::vector<ckpt::Layer> chain;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor weight =
        at::randn({width, width}).div_(std::sqrt(static_cast<double>(width))).requires_grad_();
    chain.push_back([weight](const Tensor& t) { return at::linear(t, weight).tanh(); });
  }
  return chain;
}

Tensor plain(const std::vector<ckpt::Layer>& chain, Tensor t) {
  for (const ckpt::Layer& layer : chain) t = layer(t);
  return t;
}

void square_root_of_segments(const Options& options, const OnRow& on_row) {
  const int64_t count = 64, width = options.quick ? 8 : 128, batch = options.quick ? 64 : 1024;
  const auto chain = layers(count, width);
  const Tensor x = at::randn({batch, width}).requires_grad_();
  const auto forward_only = [&] {
    const at::NoGradGuard no_grad;
    plain(chain, x);
  };
  const Call plain_step = [&] { plain(chain, x).sum().backward(); };
  plain_step();  // the gradients of the parameters exist from here on
  const auto plain_peak = static_cast<double>(TensorBytes::peak_of(plain_step));
  const auto segments = static_cast<int64_t>(std::sqrt(count));
  const Call step = [&] {
    ckpt::checkpoint_sequential(chain, x, ckpt::Segments{segments}, {.form = ckpt::Form::kEarly})
        .sum()
        .backward();
  };
  const double peak = static_cast<double>(TensorBytes::peak_of(step)) / plain_peak;
  on_row(row("64 layers in 8 segments, peak", "checkpoint()", {peak, peak, peak}, "of plain", "<= 0.30"));
  const auto seconds = timed(options, {step, plain_step, forward_only});
  std::vector<double> added;
  for (size_t i = 0; i < seconds[0].size(); ++i)
    added.push_back((seconds[0][i] - seconds[1][i]) / seconds[2][i]);
  on_row(row("64 layers in 8 segments, time added", "checkpoint()", median_interval(added), "forwards",
             "<= 1.05"));
}

void a_long_chain(const Options& options, const OnRow& on_row) {
  const int64_t count = options.quick ? 300 : 10'000;
  const Tensor x = at::randn({4096}).requires_grad_();
  const auto peak = [&](int64_t length) {
    const std::vector<ckpt::Layer> chain(static_cast<size_t>(length), [](const Tensor& t) { return t.sin(); });
    x.mutable_grad() = at::zeros_like(x);
    const int64_t bytes = TensorBytes::peak_of(
        [&] { ckpt::checkpoint_sequential(chain, x, ckpt::Revolve{20}).sum().backward(); });
    return static_cast<double>(bytes) / static_cast<double>(x.nbytes());
  };
  const double states = peak(count);
  on_row(row("a long chain with 20 snapshots, peak", std::to_string(count) + " layers",
             {states, states, states}, "states", "does not grow with the chain"));
}

void checkpoint_bench(const Options& options, const OnRow& on_row) {
  const ScopedInstall installed;
  torch::manual_seed(0);
  cost_of_a_region(options, on_row);
  square_root_of_segments(options, on_row);
  a_long_chain(options, on_row);
}

std::string checkpoint_row(const nlohmann::json& row) {
  static const TextTable table({{"", -38}, {"", -14}, {"", 10}, {"", 0}, {"", -9}, {"goal", 0}});
  return table.row({row["name"], row["way"], cell(row, "figure"),
                    format("[%.3f, %.3f]", row["lo"].get<double>(), row["hi"].get<double>()), row["unit"],
                    "goal " + cell(row, "goal")});
}

}  // namespace

Benchmark checkpoint_benchmark() {
  return {.name = "checkpoint",
          .what = "Time and weigh checkpointed regions beside the plain ones.",
          .lists = {{.text = checkpoint_row}},
          .measure = measured_by(checkpoint_bench),
          .takes_threads = true,
          .rounds = "--rounds"};
}

}  // namespace overdrive::bench
