// What a stage did with a micro-batch, cut off at its input, and the way back through it: a backward of its
// own. Made by one forward, then owned by a node of the graph; one thread at a time.
#pragma once

#include "checkpoint/region/region.h"
#include "checkpoint/region/saved_inputs.h"
#include "checkpoint/region/tape.h"

#include <atomic>
#include <memory>
#include <optional>

namespace overdrive::checkpoint {

// The options of its regions: their name says which stage it is.
Options options_of_stage(Options region, size_t stage);

class StagePart {
 public:
  // Runs the function on the input: as a region that runs again, or with a graph that is kept.
  StagePart(Function function, const at::Tensor& input, bool checkpointed, const Options& options);
  StagePart(const StagePart&) = delete;
  StagePart& operator=(const StagePart&) = delete;

  // What it gave, without history; requires a gradient where one may be asked for. Once.
  at::Tensor take_output();

  // The region, run again; null where a graph was kept.
  std::unique_ptr<Tape> run_again(base::Node& node) const;
  // The gradient of the input. `again` is from run_again(), or null: then this runs it.
  at::Tensor pull(std::unique_ptr<Tape> again, const at::Tensor& gradient, bool keep_graph, base::Node& node);
  // Lets go of what the way back needs.
  void release();

 private:
  at::Tensor pull_kept(const at::Tensor& gradient, bool keep_graph);

  SavedInputs input_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Tape> kept_;           // where there is no region
  std::atomic<bool> under_way_ = false;  // a backward through what was kept
  at::Tensor output_;
};

}  // namespace overdrive::checkpoint
