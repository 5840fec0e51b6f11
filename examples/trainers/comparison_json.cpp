#include "examples/trainers/comparison.h"

#include <nlohmann/json.hpp>

namespace overdrive::trainers {

namespace {

nlohmann::json to_json(const bench::Interval& interval) {
  return {{"median", interval.middle}, {"lo", interval.lo}, {"hi", interval.hi}};
}

nlohmann::json median_or_null(const std::vector<double>& samples) {
  return samples.empty() ? nlohmann::json(nullptr) : to_json(bench::median_interval(samples));
}

nlohmann::json to_json(const Cost& cost) {
  return {{"quality", cost.quality},
          {"final_loss", cost.losses.empty() ? nlohmann::json(nullptr) : nlohmann::json(cost.losses.back())},
          {"losses", cost.losses},
          {"step_seconds", median_or_null(cost.step_seconds)},
          {"backward_seconds", median_or_null(cost.backward_seconds)},
          {"step_seconds_per_block", cost.step_seconds},
          {"backward_seconds_per_block", cost.backward_seconds},
          {"peak_tensor_bytes", cost.peak_tensor_bytes},
          {"peak_heap_bytes",
           cost.peak_heap_bytes < 0 ? nlohmann::json(nullptr) : nlohmann::json(cost.peak_heap_bytes)}};
}

nlohmann::json to_json(const std::optional<Difference>& difference) {
  if (!difference) return nullptr;
  return {{"step", difference->step},
          {"parameter", difference->parameter},
          {"element", difference->element},
          {"stock", difference->stock},
          {"overdrive", difference->overdrive}};
}

}  // namespace

nlohmann::json to_json(const Comparison& result) {
  return {{"name", result.trainer->name},
          {"what", result.trainer->what},
          {"steps", result.steps},
          {"seed", result.seed},
          {"bits_equal", !result.difference},
          {"first_difference", to_json(result.difference)},
          {"quality", result.trainer->quality},
          {"stock", to_json(result.stock)},
          {"overdrive", to_json(result.overdrive)},
          {"step_ratio", to_json(result.step_ratio)},
          {"backward_ratio", to_json(result.backward_ratio)},
          {"nodes_per_backward", result.nodes_per_backward},
          {"backwards_per_step", result.backwards_per_step}};
}

}  // namespace overdrive::trainers
