#include "examples/harness/comparison.h"

#include "bench/support/same_bits.h"
#include "examples/harness/twin.h"

#include <algorithm>
#include <cstring>

namespace overdrive::harness {

namespace {

using bench::EngineKind;

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
  for (size_t i = 0; i < stock.after_step().size(); ++i) {
    for (size_t p = 0; p < stock.parameter_names().size(); ++p) {
      const auto a = stock.after_step()[i][p].contiguous();
      const auto b = ours.after_step()[i][p].contiguous();
      if (bench::same_bits(a, b)) continue;
      Difference difference = first_element(a, b);
      difference.step = first_step + static_cast<int64_t>(i);
      difference.parameter = stock.parameter_names()[p];
      return difference;
    }
  }
  return std::nullopt;
}

// Pairs of blocks that ran one after the other saw the same machine.
bench::Interval ratio(const std::vector<double>& ours, const std::vector<double>& stock) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (stock[i] > 0) ratios.push_back(ours[i] / stock[i]);
  }
  return ratios.empty() ? bench::Interval{} : bench::median_interval(std::move(ratios));
}

}  // namespace

Comparison compare(const TrainerInfo& trainer, const CompareOptions& options) {
  Comparison result;
  result.trainer = &trainer;
  result.setup = options.setup;
  const int64_t steps = options.steps > 0 ? options.steps : trainer.default_steps;
  TORCH_CHECK(steps >= 2, "a comparison needs at least 2 steps (the first block only warms up); got ", steps,
              ".");
  result.block = std::clamp<int64_t>(options.block, 1, steps / 2);

  Twin stock(EngineKind::kStock, trainer, options.setup);
  Twin ours(EngineKind::kOverdrive, trainer, options.setup);
  result.wanted_capture = options.capture;
  std::optional<Twin> captured;
  if (options.capture && trainer.not_captured.empty())
    captured.emplace(EngineKind::kOverdrive, trainer, options.setup, /*capture=*/true);
  for (int64_t turn = 0; result.steps < steps; ++turn) {
    const int64_t now = std::min(result.block, steps - result.steps);
    // Who goes first alternates, so that a machine that slows down favours nobody.
    Twin& first = turn % 2 == 0 ? stock : ours;
    Twin& second = turn % 2 == 0 ? ours : stock;
    first.run_block(now);
    second.run_block(now);
    if (captured) captured->run_block(now);
    if (!result.difference) result.difference = find_difference(stock, ours, result.steps + 1);
    if (!result.difference && captured) {
      result.difference = find_difference(stock, *captured, result.steps + 1);
      if (result.difference) result.difference->captured = true;
    }
    result.steps += now;
    if (options.progress && !options.progress(result.steps, ours.cost().losses.back())) break;
  }
  stock.finish();
  ours.finish();
  result.nodes_per_backward = stock.nodes_per_backward();
  result.backwards_per_step = stock.backwards_per_step();
  result.stock = std::move(stock.cost());
  result.overdrive = std::move(ours.cost());
  result.step_ratio = ratio(result.overdrive.blocks.step, result.stock.blocks.step);
  result.forward_ratio = ratio(result.overdrive.blocks.forward, result.stock.blocks.forward);
  result.backward_ratio = ratio(result.overdrive.blocks.backward, result.stock.blocks.backward);
  if (captured) {
    captured->finish();
    result.captured.emplace(
        CapturedCopy{.cost = captured->cost(), .report = captured->captured(), .step_ratio = {}});
    result.captured->step_ratio = ratio(result.captured->cost.blocks.step, result.stock.blocks.step);
  }
  return result;
}

}  // namespace overdrive::harness
