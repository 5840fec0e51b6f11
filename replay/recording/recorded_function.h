// The function that a recording is made of: a whole step, whose results have no graph, or a part, whose graph
// goes on outside. Owned by a Recording; used by the thread of the call. Does not know what was recorded.
#pragma once

#include "replay/capture_options.h"
#include "replay/part/part.h"
#include "replay/record/recorder.h"

#include <memory>
#include <mutex>
#include <vector>

namespace overdrive::replay {

class RecordedFunction {
 public:
  // `inputs`: how many the calls have; casts may come behind them. `counts`: of a part; null for a whole step.
  // `number`: the caller's for this function.
  RecordedFunction(const Function& function, const CaptureOptions& options, size_t inputs,
                   std::shared_ptr<PartCounts> counts, int64_t number);
  RecordedFunction(const RecordedFunction&) = delete;
  RecordedFunction& operator=(const RecordedFunction&) = delete;

  // Null for a whole step.
  Part* part() const { return part_.get(); }
  // For a recorder.
  const Function& recorded() const { return function_; }
  std::vector<at::Tensor> eager(const std::vector<at::Tensor>& inputs) const;
  // Without a look at gradients: calls are eager for good.
  std::vector<at::Tensor> plain(const std::vector<at::Tensor>& inputs) const;

  // Of a part: whether calls have shown in which form the gradients of its outputs arrive.
  bool may_be_recorded() const { return !part_ || part_->function().knows_gradients(); }
  // Of a part, before a call that is recorded: the placeholders are this thread's, and have new values.
  std::unique_lock<std::recursive_mutex> take_placeholders() const;
  // Of a part: whether what a recorded call made lives still, in a sentence. A whole step is asked by another
  // way, when its two recordings are compared.
  Refusal held_by(const Program& recorded) const;

  void adopt(const std::shared_ptr<ReplayRun>& run) const;
  void forget() const;

 private:
  const std::unique_ptr<Part> part_;
  const Function function_;
};

// Of a recording before the present one: a tensor that one call made and the program keeps, as a sentence.
Refusal still_held(const Program& before);

}  // namespace overdrive::replay
