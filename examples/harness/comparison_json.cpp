#include "examples/harness/comparison.h"

#include <nlohmann/json.hpp>

namespace overdrive::harness {

namespace {

using nlohmann::json;

json to_json(const bench::Interval& interval) {
  if (interval.middle == 0) return nullptr;
  return {{"median", interval.middle}, {"lo", interval.lo}, {"hi", interval.hi}};
}

json median_or_null(const std::vector<double>& samples) {
  return samples.empty() ? json(nullptr) : to_json(bench::median_interval(samples));
}

json memory_curve(const std::vector<MemorySample>& samples) {
  json seconds = json::array(), bytes = json::array();
  for (const MemorySample& sample : samples) {
    seconds.push_back(sample.seconds);
    bytes.push_back(sample.tensor_bytes);
  }
  return {{"seconds", seconds}, {"tensor_bytes", bytes}};
}

json to_json(const Cost& cost) {
  const bool heap = cost.peak_heap_bytes >= 0;
  return {{"quality", cost.quality},
          {"final_loss", cost.losses.empty() ? json(nullptr) : json(cost.losses.back())},
          {"losses", cost.losses},
          {"step_seconds", median_or_null(cost.blocks.step)},
          {"forward_seconds", median_or_null(cost.blocks.forward)},
          {"backward_seconds", median_or_null(cost.blocks.backward)},
          {"step_seconds_per_block", cost.blocks.step},
          {"forward_seconds_per_block", cost.blocks.forward},
          {"backward_seconds_per_block", cost.blocks.backward},
          {"seconds_of_every_step", cost.every_step.step},
          {"peak_tensor_bytes", cost.peak_tensor_bytes},
          {"peak_heap_bytes", heap ? json(cost.peak_heap_bytes) : json(nullptr)},
          {"tensor_allocations_per_step", cost.tensor_allocations},
          {"heap_allocations_per_step", heap ? json(cost.heap_allocations) : json(nullptr)},
          {"memory_over_a_step", memory_curve(cost.memory)},
          {"waits_per_step", cost.waits},
          {"preemptions_per_step", cost.preemptions},
          {"threads_started", cost.threads_started}};
}

json to_json(const std::optional<Difference>& difference) {
  if (!difference) return nullptr;
  return {{"step", difference->step},
          {"parameter", difference->parameter},
          {"element", difference->element},
          {"stock", difference->stock},
          {difference->captured ? "captured" : "overdrive", difference->overdrive}};
}

// Null where it was not asked for; otherwise what came of it.
json captured_to_json(const Comparison& result) {
  if (!result.wanted_capture) return nullptr;
  if (!result.captured) return {{"refusal", result.trainer->not_captured}, {"replayed", 0}};
  const CapturedCopy& copy = *result.captured;
  return {{"calls", copy.report.calls},
          {"replayed", copy.report.replayed},
          {"refusal", copy.report.refusal},
          {"quality", copy.cost.quality},
          {"step_seconds", median_or_null(copy.cost.blocks.step)},
          {"step_ratio", to_json(copy.step_ratio)}};
}

}  // namespace

json to_json(const Comparison& result) {
  const TrainerInfo& trainer = *result.trainer;
  return {{"name", trainer.name},
          {"what", trainer.what},
          {"shows", trainer.shows},
          {"steps", result.steps},
          {"block", result.block},
          {"seed", result.setup.seed},
          {"device", result.setup.device.str()},
          {"dtype", c10::toString(result.setup.dtype)},
          {"bits_equal", !result.difference},
          {"first_difference", to_json(result.difference)},
          {"quality", trainer.quality},
          {"more_is_better", trainer.more_is_better},
          {"stock", to_json(result.stock)},
          {"overdrive", to_json(result.overdrive)},
          {"captured", captured_to_json(result)},
          {"step_ratio", to_json(result.step_ratio)},
          {"forward_ratio", to_json(result.forward_ratio)},
          {"backward_ratio", to_json(result.backward_ratio)},
          {"nodes_per_backward", result.nodes_per_backward},
          {"backwards_per_step", result.backwards_per_step}};
}

namespace {

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

std::string page_of(const nlohmann::json& document) {
  std::string data = document.dump();
  // "</script>" inside a name would end the block; in JSON the slash may be written so.
  replace_all(data, "</", "<\\/");
  std::string page = kPage;
  const std::pair<const char*, std::string> parts[] = {
      {"/*STYLE*/", kPageStyle}, {"/*SCRIPT*/", kPageScript}, {"/*DATA*/", std::move(data)}};
  for (const auto& [mark, content] : parts) page.replace(page.find(mark), std::string(mark).size(), content);
  return page;
}

}  // namespace overdrive::harness
