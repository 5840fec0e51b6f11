// Trains two copies of one model from one seed, one under each engine, and tells whether and where they part,
// and what each cost; and the result as text, JSON or a page. Runs on the calling thread. Prints nothing.
#pragma once

#include "bench/statistics.h"
#include "examples/trainers/trainer.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

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

// Tensor memory that a training holds at a moment of a step: its model, gradients and optimizer included.
struct MemorySample {
  double seconds = 0;  // since the step began
  int64_t tensor_bytes = 0;
};

struct Times {
  std::vector<double> step, forward, backward;  // seconds
};

// What a training cost under one engine.
struct Cost {
  std::vector<double> losses;  // one per step
  Times every_step;            // of the timed steps, in order
  Times blocks;                // medians of the steps of each block
  double quality = 0;

  // Of the first block, which warms up and is not timed.
  int64_t peak_tensor_bytes = 0;     // the highest such sample of any step
  int64_t peak_heap_bytes = 0;       // from operator new, beyond what was alive before a step; -1: not counted
  double tensor_allocations = 0;     // a step
  double heap_allocations = 0;       // a step
  std::vector<MemorySample> memory;  // the step with that peak, thinned out

  // Of the timed blocks.
  double waits = 0;             // a step: a thread gave up its processor to wait
  double preemptions = 0;       // a step: a thread had to give it up
  int64_t threads_started = 0;  // and still there at the end of the block that started them
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

// What one model did under both engines, line by line.
std::string table_of(const Comparison& result);

// A line a model, and one that says whether all bits were equal.
std::string summary_of(const std::vector<Comparison>& results);

// Comparisons, as one JSON document, as one web page that needs nothing but itself: charts, figures, the
// machine and the versions.
std::string page_of(const nlohmann::json& document);

// The files of page/, put into the program by CMake.
extern const char* const kPage;
extern const char* const kPageStyle;
extern const char* const kPageScript;

// "sqrt" or "revolve:K"; throws UsageError for anything else.
trainers::Checkpointing parse_checkpointing(const std::string& text);
std::string name_of(const trainers::Checkpointing& checkpointing);

// What checkpointing saves: the peak of activations in one training step with each way of it, on the CPU, with
// the engine that is installed. One object for each way: checkpoint, peak_bytes, of_plain, and same_bits,
// whether the step left the plain step's parameters.
nlohmann::json checkpoint_table(const trainers::TrainerInfo& info, const trainers::Setup& setup);
std::string text_of_checkpoint_table(const nlohmann::json& rows);

}  // namespace overdrive::harness
