#include "examples/trainers/comparison.h"

#include "bench/engine_switch.h"
#include "bench/memory_counter.h"

#include <algorithm>
#include <cstring>

namespace overdrive::trainers {

namespace {

using bench::EngineKind;
using Clock = std::chrono::steady_clock;
using Snapshot = std::vector<torch::Tensor>;

struct Twin {
  Twin(EngineKind engine_kind, const TrainerInfo& info, uint64_t seed)
      : kind(engine_kind), model(info.make(seed)), names(model->named_parameters().keys()) {}

  const EngineKind kind;
  const std::unique_ptr<Trainer> model;
  const std::vector<std::string> names;
  Meter meter;
  Cost cost;
  // The parameters after each step of the block that was run last.
  std::vector<Snapshot> after_step;
};

Snapshot parameters_of(const Trainer& model) {
  torch::NoGradGuard no_grad;
  Snapshot copies;
  for (const auto& parameter : model.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

// Runs `steps` steps and notes the median of their times; the copies are made outside the stopwatch.
void run_timed_block(Twin& twin, int64_t steps) {
  const bench::UseEngine engine(twin.kind);
  twin.after_step.clear();
  std::vector<double> step_seconds, backward_seconds;
  for (int64_t i = 0; i < steps; ++i) {
    twin.meter.reset();
    const auto start = Clock::now();
    twin.cost.losses.push_back(twin.model->step(twin.meter));
    step_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    backward_seconds.push_back(twin.meter.backward_seconds());
    twin.after_step.push_back(parameters_of(*twin.model));
  }
  twin.cost.step_seconds.push_back(bench::median(step_seconds));
  twin.cost.backward_seconds.push_back(bench::median(backward_seconds));
}

// The first block warms up and is not timed, so it can count memory and nodes.
void run_counted_block(Twin& twin, int64_t steps) {
  const bench::UseEngine engine(twin.kind);
  twin.after_step.clear();
  for (int64_t i = 0; i < steps; ++i) {
    {
      const bench::MemoryCounter memory;
      twin.cost.losses.push_back(twin.model->step(twin.meter));
      const bench::MemoryPeak peak = memory.peak();
      twin.cost.peak_tensor_bytes = std::max(twin.cost.peak_tensor_bytes, peak.tensor_bytes);
      twin.cost.peak_heap_bytes = std::max(twin.cost.peak_heap_bytes, peak.heap_bytes);
    }
    twin.after_step.push_back(parameters_of(*twin.model));
  }
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

Difference first_element(const torch::Tensor& stock, const torch::Tensor& ours) {
  const auto size = stock.element_size();
  const auto* a = static_cast<const char*>(stock.const_data_ptr());
  const auto* b = static_cast<const char*>(ours.const_data_ptr());
  int64_t element = 0;
  while (std::memcmp(a + element * size, b + element * size, size) == 0) ++element;
  Difference difference;
  difference.element = element;
  difference.stock = stock.flatten()[element].item<double>();
  difference.overdrive = ours.flatten()[element].item<double>();
  return difference;
}

std::optional<Difference> find_difference(const Twin& stock, const Twin& ours, int64_t first_step) {
  for (size_t i = 0; i < stock.after_step.size(); ++i) {
    for (size_t p = 0; p < stock.names.size(); ++p) {
      const auto a = stock.after_step[i][p].contiguous();
      const auto b = ours.after_step[i][p].contiguous();
      if (same_bits(a, b)) continue;
      Difference difference = first_element(a, b);
      difference.step = first_step + static_cast<int64_t>(i);
      difference.parameter = stock.names[p];
      return difference;
    }
  }
  return std::nullopt;
}

bench::Interval ratio(const std::vector<double>& ours, const std::vector<double>& stock) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / stock[i]);
  return bench::median_interval(std::move(ratios));
}

double evaluate(Twin& twin) {
  const bench::UseEngine engine(twin.kind);
  return twin.model->evaluate();
}

}  // namespace

Comparison compare(const TrainerInfo& trainer, const CompareOptions& options) {
  Comparison result;
  result.trainer = &trainer;
  result.seed = options.seed;
  const int64_t steps = options.steps > 0 ? options.steps : trainer.default_steps;
  TORCH_CHECK(steps >= 2, "a comparison needs at least 2 steps (the first block only warms up); got ", steps,
              ".");
  const int64_t block = std::clamp<int64_t>(options.block, 1, steps / 2);

  Twin stock(EngineKind::kStock, trainer, options.seed);
  Twin ours(EngineKind::kOverdrive, trainer, options.seed);
  stock.meter.count_nodes(true);
  for (int64_t block_number = 0; result.steps < steps; ++block_number) {
    const int64_t now = std::min(block, steps - result.steps);
    auto run = block_number == 0 ? &run_counted_block : &run_timed_block;
    // Who goes first alternates, so that a machine that slows down favours nobody.
    Twin& first = block_number % 2 == 0 ? stock : ours;
    Twin& second = block_number % 2 == 0 ? ours : stock;
    run(first, now);
    run(second, now);
    if (block_number == 0) {
      const auto backwards = static_cast<double>(stock.meter.backwards());
      result.backwards_per_step = backwards / static_cast<double>(now);
      result.nodes_per_backward = backwards > 0 ? static_cast<double>(stock.meter.nodes()) / backwards : 0;
      stock.meter.count_nodes(false);
    }
    if (!result.difference) result.difference = find_difference(stock, ours, result.steps + 1);
    result.steps += now;
    if (options.progress && !options.progress(result.steps, ours.cost.losses.back())) break;
  }
  stock.cost.quality = evaluate(stock);
  ours.cost.quality = evaluate(ours);
  result.stock = std::move(stock.cost);
  result.overdrive = std::move(ours.cost);
  if (!result.stock.step_seconds.empty()) {
    result.step_ratio = ratio(result.overdrive.step_seconds, result.stock.step_seconds);
    result.backward_ratio = ratio(result.overdrive.backward_seconds, result.stock.backward_seconds);
  }
  return result;
}

}  // namespace overdrive::trainers
