// What does it cost to look for the first NaN? A plain backward beside one under NanWatch and one in anomaly
// mode.
#include "bench/benchmark.h"
#include "bench/statistics.h"
#include "bench/timing.h"
#include "engine/engine.h"
#include "inspect/nan/nan_watch.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

namespace {

using at::Tensor;

// A loss whose graph is kept, so that only the backward is timed.
struct Model {
  std::string name;
  Tensor loss;
};

Tensor parameter(at::IntArrayRef sizes) {
  return at::randn(sizes).div_(std::sqrt(static_cast<double>(sizes.back()))).requires_grad_();
}

Model layers(int64_t batch, int64_t width, int64_t count) {
  Tensor x = at::randn({batch, width});
  for (int64_t i = 0; i < count; ++i) x = at::linear(x, parameter({width, width}), parameter({width})).relu();
  return {format("%lld layers of %lld, batch %lld", static_cast<long long>(count),
                 static_cast<long long>(width), static_cast<long long>(batch)),
          x.square().mean()};
}

Model attention(int64_t batch, int64_t tokens, int64_t width, int64_t count) {
  Tensor x = at::randn({batch, tokens, width});
  for (int64_t i = 0; i < count; ++i) {
    const Tensor normed = at::layer_norm(x, {width}, parameter({width}), parameter({width}));
    const auto parts = at::linear(normed, parameter({3 * width, width})).chunk(3, -1);
    const Tensor weights = (parts[0].matmul(parts[1].transpose(1, 2)) / std::sqrt(double(width))).softmax(-1);
    x = x + at::linear(weights.matmul(parts[2]), parameter({width, width}));
    x = x + at::linear(at::gelu(at::linear(x, parameter({4 * width, width}))), parameter({width, 4 * width}));
  }
  return {format("%lld attention blocks of %lld", static_cast<long long>(count), static_cast<long long>(width)),
          x.square().mean()};
}

Model convolutions(int64_t batch, int64_t size, int64_t channels) {
  Tensor x = at::randn({batch, 3, size, size});
  x = at::conv2d(x, parameter({channels, 3, 3, 3}), {}, 1, 1).relu();
  for (int i = 0; i < 3; ++i) x = at::conv2d(x, parameter({channels, channels, 3, 3}), {}, 1, 1).relu();
  return {format("4 convolutions of %lld channels", static_cast<long long>(channels)), x.square().mean()};
}

Model small_nodes(int64_t count) {
  Tensor x = at::ones({4, 4}).requires_grad_();
  for (int64_t i = 0; i < count; ++i) x = x * 1.0001;
  return {format("%lld products of 4x4", static_cast<long long>(count)), x.sum()};
}

void measure(const Options& options, const OnRow& on_row) {
  const ScopedInstall installed;
  torch::manual_seed(0);
  const bool quick = options.quick;
  std::vector<Model> models;
  models.push_back(layers(quick ? 8 : 256, quick ? 16 : 512, 6));
  models.push_back(attention(8, quick ? 8 : 64, quick ? 16 : 256, 2));
  models.push_back(convolutions(quick ? 1 : 8, quick ? 8 : 32, quick ? 4 : 32));
  models.push_back(small_nodes(quick ? 10 : 1000));
  for (const Model& model : models) {
    options.check_stop();
    const Call plain = [&] { model.loss.backward({}, /*retain_graph=*/true); };
    const Call watched = [&] {
      const NanWatch watch;
      plain();
      TORCH_CHECK(!watch.first().has_value(), model.name, ": ", watch.first()->text());
    };
    const Call anomaly = [&] {
      const torch::autograd::DetectAnomalyGuard guard;
      plain();
    };
    plain();  // the gradients exist from here on
    const auto seconds =
        time_in_turns({plain, watched, anomaly}, quick ? 3 : options.rounds, quick ? 0 : 20e-3);
    std::vector<double> ratios, anomaly_ratios;
    for (size_t i = 0; i < seconds[0].size(); ++i) {
      ratios.push_back(seconds[1][i] / seconds[0][i]);
      anomaly_ratios.push_back(seconds[2][i] / seconds[0][i]);
    }
    const Interval ratio = median_interval(ratios), of_anomaly = median_interval(anomaly_ratios);
    on_row({{"name", model.name},
            {"plain_us", median(seconds[0]) * 1e6},
            {"ratio", ratio.middle},
            {"ratio_lo", ratio.lo},
            {"ratio_hi", ratio.hi},
            {"anomaly_ratio", of_anomaly.middle},
            {"anomaly_ratio_lo", of_anomaly.lo},
            {"anomaly_ratio_hi", of_anomaly.hi}});
  }
}

const TextTable& nan_table() {
  static const TextTable columns(
      {{"a backward", -34}, {"plain us", 10}, {"  with NanWatch [95 %]", -23}, {"in anomaly mode [95 %]", 0}});
  return columns;
}

std::string row_text(const nlohmann::json& row) {
  return nan_table().row(
      {row["name"], cell(row, "plain_us", "%.0f"), "  " + ratio_of(row),
       with_interval(row["anomaly_ratio"], row["anomaly_ratio_lo"], row["anomaly_ratio_hi"])});
}

}  // namespace

Benchmark nan_benchmark() {
  return {.name = "nan",
          .what = "Time a backward that looks for the first NaN, and one in anomaly mode, beside a plain one.",
          .lists = {{.head = nan_table().head(), .text = row_text}},
          .measure = measured_by(measure)};
}

}  // namespace overdrive::bench
