// A program ready to run: its steps in order, the guard of what it uses from outside, and the undoing of a run
// that throws in the middle. Owned by a Recording; one thread at a time. Whether a call may be
// replayed at all is the recording's decision; that a replay has eager's bits is self_check.h's.
#pragma once

#include "replay/bind/snapshot.h"
#include "replay/guard/outside_guard.h"
#include "replay/run/boxed_step.h"

#include <atomic>
#include <iosfwd>
#include <memory>
#include <string>
#include <unordered_set>

namespace overdrive::replay {

struct ReplayStep {
  Step step;
  int op;
  // Null for a direct step.
  BoxedStep* boxed;
  // Whether the step puts the program's own numbers in place before the operator.
  bool fills = false;
  // Where it puts them.
  int filled = -1;
};

// What runs the steps of a replay in the place of one loop on the calling thread. Owned by its ReplayRun, and
// made after it. How the steps are divided is the runner's to know (lanes/).
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Runs all steps. False: not this time, and no step has run. Throws the error of the first step, in the
  // program's order, that throws. `done` is its place then, and `changed` whether a step has begun that changes
  // what cannot be put back.
  virtual bool run(size_t& done, bool& changed) = 0;
  // How the steps are divided, as a line of text.
  virtual void explain(std::ostream& out) const = 0;
  // The same as JSON, with the time of each step and where it waits.
  virtual std::string to_json() const = 0;
};

class ReplayRun {
 public:
  ReplayRun(Program program, Passes passes, const std::vector<at::Tensor>& buffers);
  // The program of another run, which was checked, in memory of its own.
  explicit ReplayRun(const ReplayRun& other);

  const BoundProgram& bound() const { return bound_; }
  const Program& program() const { return bound_.program(); }
  // The last thing that is done with a run.
  Program take_program() { return bound_.take_program(); }
  OutsideGuard& guard() { return guard_; }
  const OutsideGuard& guard() const { return guard_; }
  const std::vector<ReplayStep>& steps() const { return steps_; }
  // Why it cannot be replayed; empty when it can.
  const std::string& refusal() const;

  // Runs the steps. False: an operator threw, everything is as before, and the call is eager's to make. Throws
  // where that cannot be: memory that lives on was changed after the last operator that may throw on its data.
  bool run();
  // Of a part: its operators before the backward, as run() does it, and those of one of its backwards, as often
  // as wanted.
  bool run_forward();
  // The name of the operator whose answer took back the last run that returned false; empty: an error did.
  const std::string& other_answer() const { return other_answer_; }
  // The error of the last run that returned false.
  const std::string& failure() const { return failure_; }
  void run_backward(size_t which);
  // The first run: sees to it that results are where the program says. Memory that it must fill is poisoned
  // before.
  void run_checked();
  // The steps as they are from then on, with other poison. An error where an operator changed the sizes of a
  // tensor of the program.
  void run_again();
  // Fresh tensors for what the function returns, and its values in them.
  std::vector<at::Tensor> empty_results() const;
  void fill_results(const std::vector<at::Tensor>& results) const;
  std::vector<at::Tensor> results() const;
  // Of a part: what the function returns, and the gradients of a backward that has just run. No two of them
  // share memory.
  std::vector<at::Tensor> empty_outputs() const;
  std::vector<at::Tensor> gradients(size_t which);
  // The results of an eager call take the place of the part's own.
  void take_results(const std::vector<at::Tensor>& eager) const;

  // Of a part: whether a call has its memory, from the forward to the last backward. Any thread gives it back.
  bool try_lease() { return !is_leased_.exchange(true, std::memory_order_acquire); }
  void give_back() { is_leased_.store(false, std::memory_order_release); }
  bool is_leased() const { return is_leased_.load(std::memory_order_relaxed); }

  // The step of an operator that is no view.
  Step::State& state_of(int op);
  // Of a part, after the checks: large gradients are made in fresh memory in each backward, and not copied
  // there.
  void make_large_gradients_fresh();
  // An operator's argument that is set before every run. Before run_checked().
  void declare_number(int op, int argument, double value) { numbers_.push_back({op, argument, value}); }
  size_t direct_steps() const;

  // Every run from now on is the runner's. Of a whole step.
  void run_by(std::unique_ptr<StepRunner> runner) { runner_ = std::move(runner); }
  // Null as a rule.
  const StepRunner* runner() const { return runner_.get(); }
  // Whether an error can be taken back that is thrown by an operator before this one, and none after it.
  int first_unsaved() const { return first_unsaved_; }
  // Whether the operator changes what a run that throws could not put back.
  bool changes_unsaved(int op) const;

 private:
  void make_steps();
  void plan_undo();
  // Memories that live on and that the operator changes.
  std::vector<int> changes(const Operator& op) const;
  // Counts the steps that are done.
  void run_steps(size_t& done, size_t end);
  bool run_until(size_t end);
  void run_backwards_again();
  void run_checked(std::vector<ReplayStep>& steps);
  void run_checked(ReplayStep& step);
  // Replaces a boxed step, which has just run, by a direct one that does the same.
  void make_direct(ReplayStep& step, const Snapshot& before);
  Snapshot memories_of_results(const Operator& op) const;

  BoundProgram bound_;
  OutsideGuard guard_;
  std::vector<ReplayStep> steps_;
  std::vector<ReplayStep> constant_steps_;
  // Memories that are written before the last operator that may throw on its data, and whether the generators
  // are saved with them.
  Snapshot undo_;
  std::unordered_set<int> saved_;
  bool saves_generators_ = false;
  struct Number {
    int op;
    int argument;
    double value;
  };
  std::vector<Number> numbers_;
  // The first operator that changes memory that is neither an input's buffer nor in undo_.
  int first_unsaved_ = 0;
  // A gradient that its step makes in fresh memory.
  struct Fresh {
    size_t result;
    size_t step;
    // Which result of the step.
    size_t output;
    at::Tensor made = {};
  };
  at::Tensor take_fresh(Fresh& fresh, const at::Tensor& like);
  // Whether the step can put its results into fresh memory, from now on.
  bool puts_results(ReplayStep& step);
  std::vector<Fresh> fresh_;
  // Steps before a part's backward; all of a whole step.
  size_t forward_steps_ = 0;
  // The first step of each backward, and the end.
  std::vector<size_t> backward_steps_;
  std::string other_answer_;
  std::string failure_;
  bool is_broken_ = false;
  std::string broken_;  // why
  std::atomic<bool> is_leased_ = false;
  // Before everything that it looks at goes.
  std::unique_ptr<StepRunner> runner_;
};

// A replay as text: its operators, their form, its memory. Its body is in explain_run.cpp.
void explain_run(const ReplayRun& run, std::ostream& out);

}  // namespace overdrive::replay
