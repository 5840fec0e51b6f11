// A captured part as its recording has it: the function, and the runs of the present recording, one for each
// call whose graph lives. Owned by a Recording, used by the thread that calls the part; nodes share what they
// need of it.
#pragma once

#include "replay/part/part_function.h"
#include "replay/part/part_node.h"
#include "replay/run/replay_run.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace overdrive::replay {

class Part {
 public:
  Part(Function function, std::shared_ptr<PartCounts> counts, int64_t number);

  PartFunction& function() const { return *function_; }
  // The placeholders are the holder's.
  std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(function_->mutex()); }

  // A run that was checked: the first of a new recording.
  void adopt(const std::shared_ptr<ReplayRun>& run);
  void forget();
  // A run that no call has.
  std::shared_ptr<ReplayRun> free_run();

  // The outputs of a call, with a graph. None when an operator threw, and everything is as before.
  std::optional<std::vector<at::Tensor>> replay(const std::vector<at::Tensor>& inputs, OutsideGuard& guard);

  // Of the last replay that was taken back, as ReplayRun::other_answer().
  const std::string& other_answer() const { return other_answer_; }

  size_t runs() const { return runs_.size(); }

 private:
  const std::shared_ptr<PartFunction> function_;
  const std::shared_ptr<PartCounts> counts_;
  std::shared_ptr<const PartPlan> plan_;
  void forget_idle();

  struct Kept {
    std::shared_ptr<ReplayRun> run;
    // The number of the last call that had it.
    uint64_t used;
  };
  std::vector<Kept> runs_;
  uint64_t calls_ = 0;
  std::string other_answer_;
};

}  // namespace overdrive::replay
