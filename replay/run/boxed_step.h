// An operator replayed through the dispatcher, below autograd: by its out= form into the program's memory, in
// place, or by its ordinary form with the result copied. Owned by its ReplayRun; one thread at a time.
#pragma once

#include "replay/bind/bound_program.h"
#include "replay/bind/step.h"

#include <optional>

namespace overdrive::replay {

enum class Form : uint8_t { kOut, kInPlace, kCopied };

// What an operator tells the program of its data is not what it told in the recording.
struct OtherAnswer final : std::exception {
  explicit OtherAnswer(const Operator& asked) : op(asked) {}
  const char* what() const noexcept override { return "an operator told the program something else"; }
  const Operator& op;
};

class BoxedStep final : public Step::State {
 public:
  BoxedStep(const BoundProgram& bound, const Operator& op);

  void run();
  Form form() const { return form_; }
  // Whether the out= form leaves its results where they are, which some do not. Runs it into memory of its own.
  bool keeps_results_in_place();
  void use_copies();
  // Some kernels write to a list that they are given. Where the last run has, later runs give a copy.
  void protect_lists();
  // Of the out= form with one result: where the next run puts it.
  bool has_one_result() const { return form_ == Form::kOut && op_.out.size() == 1; }
  void put_result_in(at::Tensor tensor) { arguments_.back() = std::move(tensor); }
  // The same form as another step of the operator, which was tried.
  void do_as(const BoxedStep& tried);
  bool set_number(size_t argument, double value) override {
    arguments_[argument] = c10::IValue(value);
    return true;
  }

 private:
  void store_results();
  c10::IValue made(const Argument& argument) const;

  const BoundProgram& bound_;
  const Operator& op_;
  Form form_;
  c10::OperatorHandle handle_;
  c10::Stack arguments_;
  c10::Stack stack_;
  bool copies_lists_ = false;
};

Step boxed_step(const BoundProgram& bound, const Operator& op);

}  // namespace overdrive::replay
