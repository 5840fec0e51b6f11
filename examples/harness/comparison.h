// Trains two copies of one model from one seed, one under each engine, and tells whether and where they part,
// and what each cost. Runs on the calling thread. Prints nothing.
#pragma once

#include "bench/statistics.h"
#include "examples/harness/cost.h"
#include "examples/trainers/trainer.h"

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace overdrive::harness {

using trainers::Setup;
using trainers::TrainerInfo;

struct CompareOptions {
  int64_t steps = 0;  // 0: the trainer's own
  Setup setup = {};
  // Steps that one engine runs before the other takes its turn: long enough to warm the caches.
  int64_t block = 10;
  // A third copy, with captured steps, where the trainer can have them.
  bool capture = false;
  // Called after each block with the steps done and the loss; may be empty. False ends the training.
  std::function<bool(int64_t done, double loss)> progress = {};
};

// The first place where the two copies are not the same bit for bit.
struct Difference {
  int64_t step = 0;
  std::string parameter;
  int64_t element = 0;
  double stock = 0;
  double overdrive = 0;
  bool captured = false;  // `overdrive` is the captured copy's
};

// The copy with captured steps.
struct CapturedCopy {
  Cost cost;
  trainers::Trainer::Captured report;
  bench::Interval step_ratio;  // to stock's
};

struct Comparison {
  const TrainerInfo* trainer = nullptr;
  int64_t steps = 0;
  int64_t block = 0;
  Setup setup;
  std::optional<Difference> difference;
  Cost stock, overdrive;
  bool wanted_capture = false;
  std::optional<CapturedCopy> captured;
  double nodes_per_backward = 0;
  double backwards_per_step = 0;
  bench::Interval step_ratio, forward_ratio, backward_ratio;  // ours to stock's; all 0 when nothing was timed
};

Comparison compare(const TrainerInfo& trainer, const CompareOptions& options);

nlohmann::json to_json(const Comparison& result);

}  // namespace overdrive::harness
