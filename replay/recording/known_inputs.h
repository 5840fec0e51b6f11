// Inputs of calls beside those of recordings: whether a recording can tell them from what it knows, and their
// way into the buffers of a replay and back. Owned by a Recording; one thread at a time.
#pragma once

#include "replay/guard/input_signature.h"
#include "replay/guard/value_guards.h"
#include "replay/run/replay_run.h"

#include <vector>

namespace overdrive::replay {

class KnownInputs {
 public:
  // Two recordings are equal with these inputs.
  void note(const Program& before, const Program& now);
  void forget() { varied_.clear(); }
  // Whether each input was seen as more than one tensor, or is the one that was recorded: if the function also
  // reaches the only one by another name, a recording cannot tell.
  bool know(const Program& program, const std::vector<at::Tensor>& inputs) const;

 private:
  // Of each input: whether two recordings that are equal had another tensor there.
  std::vector<bool> varied_;
};

// Whether no input is a tensor that the program knows from outside: a recording of the call would take both
// for the input.
bool tells_apart(const Program& program, const std::vector<at::Tensor>& inputs);
// Whether a leaf that the program knows from outside is given to it as an input.
bool is_known_leaf(const Program& program, const std::vector<at::Tensor>& inputs);

// Copies the inputs into the run's buffers. `guards`: the buffers of those that it holds have the values
// already; null: every input is copied.
void fill_buffers(const ReplayRun& run, const std::vector<at::Tensor>& inputs,
                  const std::vector<InputSignature>& signatures, const ValueGuards* guards);
// After a replay: inputs that the program changes.
void give_back_inputs(const ReplayRun& run, const std::vector<at::Tensor>& inputs);

}  // namespace overdrive::replay
