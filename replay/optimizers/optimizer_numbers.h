// The numbers of an optimizer in a program: found in a recording, set anew before every replay from the options
// and the step counts, which go on as in eager. Owned by a Recording; one thread at a time. Note [Numbers of an
// optimizer] is in the source.
#pragma once

#include "replay/optimizers/update_rules.h"
#include "replay/run/replay_run.h"

#include <string>
#include <vector>

namespace overdrive::replay {

class OptimizerNumbers {
 public:
  struct Use {
    int op;
    int argument;
    size_t in_update;
    Step::State* step = nullptr;
  };
  struct Parameter {
    c10::TensorImpl* tensor;
    size_t group;
    std::vector<Use> uses;
    // Of its state, after the recorded call; none without a state.
    std::vector<const c10::TensorImpl*> state_tensors = {};
    // Valid from difference() to the end of the call.
    torch::optim::OptimizerParamState* state = nullptr;
  };

  explicit OptimizerNumbers(torch::optim::Optimizer& optimizer);

  // Of an optimizer that is not understood.
  const std::string& refusal() const { return refusal_; }

  // Finds the update in the recording of a call that has just ended. Returns a refusal, or nothing.
  std::string find(const Program& program);
  // Of the optimizer, when the update was found.
  const std::vector<c10::TensorImpl*>& parameters() const { return all_; }
  bool may_differ(size_t op, size_t argument) const;
  // Whether the operator is one of the optimizer's step(), whose numbers come from here.
  bool is_update(size_t op) const { return static_cast<int>(op) >= first_ && static_cast<int>(op) <= last_; }
  // Tells the run of a recorded call which numbers vary. Before its steps are checked.
  void declare(ReplayRun& run) const;
  // The checked run is the one whose numbers are set from now on.
  void bind(ReplayRun& run);

  // Why the program does not fit the optimizer any more, or null. Computes the numbers of the next step.
  Difference difference();
  void set_for_next_step();
  void count_step();

  // For a step file.
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  OptimizerKind kind() const { return kind_; }
  // Those that the update in the recording changes.
  const std::vector<Parameter>& updated() const { return parameters_; }
  int64_t steps_of(c10::TensorImpl* tensor) const;

 private:
  // A parameter that the step leaves alone: it would not if it had a gradient.
  struct Idle {
    c10::TensorImpl* tensor;
    bool has_gradient;
  };
  using Update = std::vector<UpdateOperator>;
  // The update of a parameter that the step changes, in this memory.
  struct Expected {
    Parameter parameter;
    Update update;
    int memory;
  };

  // By the options and counts of the call. Notes the idle parameters.
  std::vector<Expected> expect(const Program& program);
  // How often these updates stand in the program, one after the other. Notes the first use.
  size_t search(const Program& program, std::vector<Expected>& expected);
  torch::optim::OptimizerParamState* state_of(c10::TensorImpl* tensor) const;
  Update update_now(const Parameter& parameter, int64_t ahead) const;
  // The parameter's update in the operators from `at` on. False when it is not there.
  bool match(const Program& program, const std::vector<int>& kept, size_t at, const Update& update, int memory,
             Parameter& parameter) const;
  std::vector<c10::TensorImpl*> all_parameters() const;
  void set(const Parameter& parameter, const Update& update) const;

  torch::optim::Optimizer& optimizer_;
  const OptimizerKind kind_;
  std::string refusal_;
  std::vector<c10::TensorImpl*> all_;
  std::vector<Parameter> parameters_;
  std::vector<Idle> idle_;
  // The operators of step(), in the recording.
  int first_ = 0;
  int last_ = -1;
  // Of each group: the operators when it was found, and those of the next step with their numbers.
  std::vector<Update> recorded_;
  std::vector<std::vector<std::pair<int64_t, Update>>> next_;
};

}  // namespace overdrive::replay
