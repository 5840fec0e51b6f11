// Question: what does a pipeline gain when a stage runs again before its gradient arrives, and not after? Four
// devices of the fake accelerator, whose kernels take a known time each; the devices work at the same time
// as far as the engine lets them. Prints both ways and their ratio:
// pipeline_bench [ROUNDS] [FILE.json]
#include "bench/environment.h"
#include "bench/output_file.h"
#include "bench/statistics.h"
#include "checkpoint/pipeline/pipeline.h"
#include "engine/engine.h"
#include "test/support/fake/accelerator.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace overdrive::bench {
namespace {

using checkpoint::Pipeline;
using checkpoint::PipelineOptions;
namespace fake = test::fake;

constexpr int kStages = 4;
constexpr auto kKernel = std::chrono::microseconds(500);

// Every operator of a layer takes kKernel on its device: one forward, two backward.
Pipeline pipeline(int64_t chunks, bool early) {
  std::vector<checkpoint::Stage> stages;
  for (int i = 0; i < kStages; ++i) {
    const std::vector<checkpoint::Layer> layers(4, [](const at::Tensor& t) { return t.sin(); });
    stages.push_back({.layers = layers, .device = fake::device(i), .parameters = {}});
  }
  return Pipeline(std::move(stages), {.chunks = chunks,
                                      .checkpointed = PipelineOptions::Checkpointed::kAlways,
                                      .recompute_before_gradient = early});
}

// The best that can come of it: a device works all the time once the first gradient has reached it, with either
// order; early saves the recomputations on that gradient's way. In kernels a layer: one to recompute, two back.
double least_ratio(int64_t chunks) {
  const auto both = static_cast<double>(3 * chunks);
  return (both + 2 * (kStages - 1)) / (both + 3 * (kStages - 1));
}

struct Seconds {
  double step, backward;
};

Seconds time_of(const Pipeline& pipeline, const at::Tensor& x) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const double begin = now();
  const at::Tensor y = pipeline.forward(x);
  const double middle = now();
  y.backward(at::ones_like(y));
  return {now() - begin, now() - middle};
}

void compare(int64_t chunks, int rounds, nlohmann::json& rows) {
  const Pipeline early = pipeline(chunks, true), late = pipeline(chunks, false);
  const at::Tensor x = at::ones({chunks, 4}).to(fake::device(0)).detach().requires_grad_();
  std::vector<double> step, backward, early_seconds, late_seconds;
  for (int i = 0; i < rounds; ++i) {
    Seconds a, b;
    if (i % 2 == 0) a = time_of(early, x);
    b = time_of(late, x);
    if (i % 2 != 0) a = time_of(early, x);
    step.push_back(a.step / b.step);
    backward.push_back(a.backward / b.backward);
    early_seconds.push_back(a.backward);
    late_seconds.push_back(b.backward);
  }
  const Interval of_step = median_interval(step), of_backward = median_interval(backward);
  std::printf(
      "%lld micro-batches: backward %.1f ms, %.1f ms after the gradient; %.3f [%.3f, %.3f], at best %.3f; step "
      "%.3f\n",
      static_cast<long long>(chunks), median(early_seconds) * 1e3, median(late_seconds) * 1e3,
      of_backward.middle, of_backward.lo, of_backward.hi, least_ratio(chunks), of_step.middle);
  rows.push_back({{"chunks", chunks},
                  {"stages", kStages},
                  {"early_ms", median(early_seconds) * 1e3},
                  {"late_ms", median(late_seconds) * 1e3},
                  {"backward_ratio", of_backward.middle},
                  {"backward_ratio_lo", of_backward.lo},
                  {"backward_ratio_hi", of_backward.hi},
                  {"backward_ratio_least", least_ratio(chunks)},
                  {"step_ratio", of_step.middle}});
}

void run(int rounds, const std::string& file) {
  const ScopedInstall installed;
  fake::on_kernel([](const fake::Kernel& kernel) {
    if (kernel.op == "aten::sin" || kernel.op == "aten::cos" || kernel.op == "aten::mul") {
      std::this_thread::sleep_for(kKernel);
    }
  });
  nlohmann::json rows = nlohmann::json::array();
  for (const int64_t chunks : {1, 2, 4, 8}) compare(chunks, rounds, rows);
  fake::on_kernel(nullptr);
  if (file.empty()) return;
  OutputFile output(file);
  output.write(
      nlohmann::json{{"benchmark", "pipeline"}, {"environment", environment()}, {"rows", rows}}.dump(2));
}

}  // namespace
}  // namespace overdrive::bench

int main(int count, char** arguments) {
  overdrive::bench::run(count > 1 ? std::atoi(arguments[1]) : 15, count > 2 ? arguments[2] : "");
}
