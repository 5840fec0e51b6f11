#include "examples/harness/twin.h"

#include "bench/process_usage.h"
#include "bench/statistics.h"

#include <algorithm>
#include <chrono>

namespace overdrive::harness {

namespace {

using Clock = std::chrono::steady_clock;

// A curve to look at: the highest moment of each of `most` equal stretches, on top of what was held before.
std::vector<MemorySample> curve_of(const std::vector<bench::TensorBytes::Change>& changes, int64_t held,
                                   size_t most) {
  std::vector<MemorySample> samples{{0, held}};
  for (const auto& change : changes) {
    samples.push_back({change.seconds, samples.back().tensor_bytes + change.bytes});
  }
  if (samples.size() <= most) return samples;
  std::vector<MemorySample> highest;
  const auto at = [&](size_t i) {
    return samples.begin() + static_cast<std::ptrdiff_t>(i * samples.size() / most);
  };
  for (size_t i = 0; i < most; ++i) {
    highest.push_back(*std::max_element(
        at(i), at(i + 1), [](const auto& a, const auto& b) { return a.tensor_bytes < b.tensor_bytes; }));
  }
  return highest;
}

int64_t bytes_of(const Trainer& model) {
  int64_t bytes = 0;
  for (const auto& tensor : model.parameters()) bytes += static_cast<int64_t>(tensor.nbytes());
  for (const auto& tensor : model.buffers()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

Twin::Twin(bench::EngineKind engine, const TrainerInfo& info, const Setup& setup, bool capture)
    : engine_(engine),
      model_(make_trainer(info, setup)),
      names_(model_->named_parameters().keys()),
      held_bytes_(bytes_of(*model_)) {
  if (capture) model_->capture();
}

void Twin::run_block(int64_t steps) {
  const bench::UseEngine engine(engine_);
  after_step_.clear();
  counted_steps_ == 0 ? run_counted(steps) : run_timed(steps);
}

void Twin::keep_parameters() {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> copies;
  for (const auto& parameter : model_->parameters()) {
    copies.push_back(parameter.detach().to(torch::kCPU, parameter.scalar_type(), false, /*copy=*/true));
  }
  after_step_.push_back(std::move(copies));
}

// Counts the memory of one step.
void Twin::count_step() {
  constexpr size_t kMostChanges = 200'000, kShownSamples = 400;
  const bool is_first = cost_.losses.empty();
  const bench::MemoryCounter memory(kMostChanges);
  cost_.losses.push_back(model_->step(meter_));
  const bench::MemoryPeak peak = memory.peak();
  const int64_t held_at_most = held_bytes_ + peak.tensor_bytes;
  if (is_first || held_at_most > cost_.peak_tensor_bytes) {
    cost_.peak_tensor_bytes = held_at_most;
    cost_.memory = curve_of(memory.tensors().changes(), held_bytes_, kShownSamples);
  }
  cost_.peak_heap_bytes = is_first ? peak.heap_bytes : std::max(cost_.peak_heap_bytes, peak.heap_bytes);
  cost_.tensor_allocations += static_cast<double>(peak.tensor_allocations);
  cost_.heap_allocations += static_cast<double>(peak.heap_allocations);
  held_bytes_ += memory.tensors().now();
}

void Twin::run_counted(int64_t steps) {
  meter_.count_nodes(true);
  for (int64_t i = 0; i < steps; ++i) {
    count_step();
    keep_parameters();
  }
  meter_.count_nodes(false);
  counted_steps_ = steps;
  const auto backwards = static_cast<double>(meter_.backwards());
  backwards_per_step_ = backwards / static_cast<double>(steps);
  nodes_per_backward_ = backwards > 0 ? static_cast<double>(meter_.nodes()) / backwards : 0;
}

void Twin::run_timed(int64_t steps) {
  Times times;
  const bench::ProcessUsage before = bench::process_usage();
  for (int64_t i = 0; i < steps; ++i) {
    meter_.reset();
    const auto start = Clock::now();
    cost_.losses.push_back(model_->step(meter_));
    times.step.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    times.forward.push_back(meter_.forward_seconds());
    times.backward.push_back(meter_.backward_seconds());
    keep_parameters();
  }
  const bench::ProcessUsage after = bench::process_usage();
  cost_.waits += static_cast<double>(after.waits - before.waits);
  cost_.preemptions += static_cast<double>(after.preemptions - before.preemptions);
  cost_.threads_started += std::max<int64_t>(0, after.threads - before.threads);
  for (auto kind : {&Times::step, &Times::forward, &Times::backward}) {
    append(cost_.every_step.*kind, times.*kind);
    (cost_.blocks.*kind).push_back(bench::median(times.*kind));
  }
}

void Twin::finish() {
  const bench::UseEngine engine(engine_);
  cost_.quality = model_->evaluate();
  const auto counted = static_cast<double>(counted_steps_);
  cost_.tensor_allocations /= counted;
  cost_.heap_allocations /= counted;
  if (cost_.every_step.step.empty()) return;
  cost_.waits /= static_cast<double>(cost_.every_step.step.size());
  cost_.preemptions /= static_cast<double>(cost_.every_step.step.size());
}

}  // namespace overdrive::harness
