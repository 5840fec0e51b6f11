// One of the two copies that a comparison trains: a model, the engine that runs its backwards, and what it has
// cost so far. Owned by the comparison; one thread. Knows nothing of the other copy.
#pragma once

#include "bench/engine_switch.h"
#include "bench/memory_counter.h"
#include "examples/harness/comparison.h"
#include "examples/trainers/trainer.h"

namespace overdrive::harness {

using trainers::Meter;
using trainers::Trainer;

class Twin {
 public:
  // `capture`: its steps are captured.
  Twin(bench::EngineKind engine, const TrainerInfo& info, const Setup& setup, bool capture = false);

  // Steps under this copy's engine. The first block counts memory and allocations; every later one takes time.
  void run_block(int64_t steps);
  void finish();  // asks for the quality, and turns sums over steps into means

  // Parameters after each step of the block that was run last, copied outside the stopwatch.
  const std::vector<std::vector<torch::Tensor>>& after_step() const { return after_step_; }
  const std::vector<std::string>& parameter_names() const { return names_; }
  // Of the first block, and counted there only: it takes a walk through the graph.
  double nodes_per_backward() const { return nodes_per_backward_; }
  double backwards_per_step() const { return backwards_per_step_; }
  Cost& cost() { return cost_; }
  Trainer::Captured captured() const { return model_->captured(); }

 private:
  void run_counted(int64_t steps);
  void count_step();
  void run_timed(int64_t steps);
  void keep_parameters();

  const bench::EngineKind engine_;
  const std::unique_ptr<Trainer> model_;
  const std::vector<std::string> names_;
  Meter meter_;
  Cost cost_;
  std::vector<std::vector<torch::Tensor>> after_step_;
  int64_t counted_steps_ = 0;
  int64_t held_bytes_;  // of tensors, between two counted steps
  double nodes_per_backward_ = 0, backwards_per_step_ = 0;
};

}  // namespace overdrive::harness
