#include "replay/part/part.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// Memory of calls whose graphs lived at once is given back after so many calls that did not need it.
constexpr uint64_t kIdleCalls = 256;

// What the forward changes of what was there before it.
Snapshot state_of(const ReplayRun& run) {
  Snapshot result;
  const Program& program = run.program();
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin == Origin::kOutside && memory.written)
      result.add(run.bound().storage(static_cast<int>(i)).unsafeGetStorageImpl());
  }
  if (program.uses_random_numbers()) {
    for (const at::Generator& generator : generators_of(program)) result.add(generator);
  }
  return result;
}

}  // namespace

Part::Part(Function function, std::shared_ptr<PartCounts> counts, int64_t number)
    : function_(std::make_shared<PartFunction>(std::move(function), number)), counts_(std::move(counts)) {}

void Part::adopt(const std::shared_ptr<ReplayRun>& run) {
  runs_ = {{run, calls_}};
  run->make_large_gradients_fresh();
  plan_ = run->program().is_part() ? std::make_shared<PartPlan>(run->program(), *function_) : nullptr;
}

void Part::forget() {
  runs_.clear();
  plan_.reset();
}

std::shared_ptr<ReplayRun> Part::free_run() {
  if (++calls_ % kIdleCalls == 0) forget_idle();
  for (Kept& kept : runs_) {
    if (kept.run->is_leased()) continue;
    kept.used = calls_;
    return kept.run;
  }
  auto run = std::make_shared<ReplayRun>(*runs_.front().run);
  TORCH_CHECK(run->refusal().empty(), "A captured part could not be bound again. ", run->refusal());
  run->make_large_gradients_fresh();
  runs_.push_back({std::move(run), calls_});
  return runs_.back().run;
}

// The first one is the recording's, and that of which the others are made.
void Part::forget_idle() {
  const auto is_idle = [&](const Kept& kept) {
    return !kept.run->is_leased() && calls_ - kept.used >= kIdleCalls;
  };
  runs_.erase(std::remove_if(runs_.begin() + 1, runs_.end(), is_idle), runs_.end());
}

std::optional<std::vector<at::Tensor>> Part::replay(const std::vector<at::Tensor>& inputs,
                                                    OutsideGuard& guard) {
  std::shared_ptr<ReplayRun> run = free_run();
  run->try_lease();
  Lease lease(std::move(run));
  for (size_t i = 0; i < inputs.size(); ++i) copy_elements(lease->bound().buffers()[i], inputs[i]);
  std::vector<at::Tensor> outputs = lease->empty_outputs();
  Snapshot before = plan_->has_state ? state_of(*lease) : Snapshot();
  if (!lease->run_forward()) {
    other_answer_ = lease->other_answer();
    return std::nullopt;
  }
  lease->fill_results(outputs);
  function_->gradients().take_away();
  guard.finish_call();
  PartNode::attach(function_, plan_, counts_, std::move(lease), inputs, outputs, std::move(before));
  return outputs;
}

}  // namespace overdrive::replay
