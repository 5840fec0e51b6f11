#include "bench/checkpoint_bench.h"

#include "bench/peak_bytes.h"
#include "bench/statistics.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/chain/sequential.h"
#include "engine/engine.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

namespace {

namespace ckpt = checkpoint;
using at::Tensor;
using Call = std::function<void()>;
using OnRow = std::function<void(const nlohmann::json&)>;

double seconds_a_call(const Call& call, int64_t repeats) {
  auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(repeats);
}

// Calls timed in turns, so that all see the same machine. One list of seconds for each.
std::vector<std::vector<double>> time_in_turns(const CheckpointBenchOptions& options,
                                               const std::vector<Call>& calls) {
  std::vector<int64_t> repeats;
  for (const Call& call : calls) {
    call();
    repeats.push_back(
        std::max<int64_t>(1, static_cast<int64_t>(options.sample_seconds / seconds_a_call(call, 1))));
  }
  std::vector<std::vector<double>> seconds(calls.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t turn = round % 2 == 0 ? i : calls.size() - 1 - i;
      seconds[turn].push_back(seconds_a_call(calls[turn], repeats[turn]));
    }
  }
  return seconds;
}

nlohmann::json row(const char* name, const std::string& way, const Interval& figure, const char* unit,
                   const char* goal) {
  return {{"name", name}, {"way", way},  {"figure", figure.middle}, {"lo", figure.lo}, {"hi", figure.hi},
          {"unit", unit}, {"goal", goal}};
}

// What is left of a checkpointed step when the plain step and one more forward are taken off.
void cost_of_a_region(const CheckpointBenchOptions& options, const OnRow& on_row) {
  const Tensor x = at::randn({64}).requires_grad_();
  const auto region = [](const Tensor& t) { return t.sin(); };
  const Tensor ones = at::ones({64});
  const auto step = [&](const Tensor& y) {
    x.mutable_grad() = Tensor();
    y.backward(ones);
  };
  const auto seconds = time_in_turns(
      options, {[&] { step(ckpt::checkpoint(region, x)); }, [&] { step(region(x)); }, [&] { region(x); }});
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

void square_root_of_segments(const CheckpointBenchOptions& options, const OnRow& on_row) {
  const int64_t count = 64, width = options.quick ? 8 : 128, batch = options.quick ? 64 : 1024;
  const auto chain = layers(count, width);
  const Tensor x = at::randn({batch, width}).requires_grad_();
  const auto forward_only = [&] {
    const at::NoGradGuard no_grad;
    plain(chain, x);
  };
  const Call plain_step = [&] { plain(chain, x).sum().backward(); };
  plain_step();  // the gradients of the parameters exist from here on
  const auto plain_peak = static_cast<double>(PeakBytes::of(plain_step));
  const auto segments = static_cast<int64_t>(std::sqrt(count));
  const Call step = [&] { ckpt::checkpoint_sequential(chain, x, ckpt::Segments{segments}).sum().backward(); };
  const double peak = static_cast<double>(PeakBytes::of(step)) / plain_peak;
  on_row(row("64 layers in 8 segments, peak", "checkpoint()", {peak, peak, peak}, "of plain", "<= 0.30"));
  const auto seconds = time_in_turns(options, {step, plain_step, forward_only});
  std::vector<double> added;
  for (size_t i = 0; i < seconds[0].size(); ++i)
    added.push_back((seconds[0][i] - seconds[1][i]) / seconds[2][i]);
  on_row(row("64 layers in 8 segments, time added", "checkpoint()", median_interval(added), "forwards",
             "<= 1.05"));
}

void a_long_chain(const CheckpointBenchOptions& options, const OnRow& on_row) {
  const int64_t count = options.quick ? 300 : 10'000;
  const Tensor x = at::randn({4096}).requires_grad_();
  const auto peak = [&](int64_t length) {
    const std::vector<ckpt::Layer> chain(static_cast<size_t>(length), [](const Tensor& t) { return t.sin(); });
    x.mutable_grad() = at::zeros_like(x);
    const int64_t bytes =
        PeakBytes::of([&] { ckpt::checkpoint_sequential(chain, x, ckpt::Revolve{20}).sum().backward(); });
    return static_cast<double>(bytes) / static_cast<double>(x.nbytes());
  };
  const double states = peak(count);
  on_row(row("a long chain with 20 snapshots, peak", std::to_string(count) + " layers",
             {states, states, states}, "states", "does not grow with the chain"));
}

}  // namespace

void run_checkpoint_bench(const CheckpointBenchOptions& options, const OnRow& on_row) {
  const ScopedInstall installed;
  torch::manual_seed(0);
  cost_of_a_region(options, on_row);
  square_root_of_segments(options, on_row);
  a_long_chain(options, on_row);
}

}  // namespace overdrive::bench
