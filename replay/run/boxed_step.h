// An operator replayed through the dispatcher, below autograd: by its out= form into the program's memory, in
// place, or by its ordinary form. This one is lent the program's memory for its results where it asks for
// theirs, or its results are copied. Owned by its ReplayRun; one thread at a time.
#pragma once

#include "replay/bind/bound_program.h"
#include "replay/bind/step.h"
#include "replay/run/borrowed_storage.h"

#include <memory>
#include <optional>
#include <vector>

namespace overdrive::replay {

// How an operator's results come into the program's memory.
enum class Form : uint8_t {
  kOut,       // by the operator's out= form
  kInPlace,   // the operator writes to its arguments
  kCopied,    // new tensors are copied
  kBorrowed,  // new tensors are allocated there
};

// What an operator tells the program of its data is not what it told in the recording.
struct OtherAnswer final : std::exception {
  explicit OtherAnswer(const Operator& asked) : op(asked) {}
  const char* what() const noexcept override { return "an operator told the program something else"; }
  const Operator& op;
};

class BoxedStep final : public Step::State {
 public:
  BoxedStep(const BoundProgram& bound, const Operator& op);
  ~BoxedStep() override;

  void run();
  Form form() const { return form_; }
  // Tries the forms, into memory of their own.
  void choose_form();
  // Some kernels write to a list that they are given. Where the last run has, later runs give a copy.
  void protect_lists();
  // Whether the next run can put a result where it is told to.
  bool can_put_results() const { return form_ == Form::kOut || form_ == Form::kBorrowed; }
  void put_result_in(size_t result, at::Tensor tensor);
  // Whether the out= form is one that LibTorch generates: it calls the ordinary form and copies.
  bool has_generated_form() const;
  // The same form as another step of the operator, which was tried.
  void do_as(const BoxedStep& tried);
  bool set_number(size_t argument, double value) override {
    arguments_[argument] = c10::IValue(value);
    return true;
  }
  // Of operators that make each row of their result of the same row of their arguments, and of updates of all
  // parameters. In boxed_shares.cpp.
  std::vector<Share> shares(int count) const override;

 private:
  // Whether the out= form leaves its results where they are, which some do not.
  bool keeps_results_in_place();
  // Whether the ordinary form allocates its results where it can be lent their memory; from then on it is.
  bool lends_memory();
  bool lies_on_an_operand(const at::Tensor& result) const;
  void use_copies();
  void use_borrowed_storage(std::vector<std::optional<Allocation>> allocations);
  void run_on_borrowed_storage();
  void store_borrowed_results(const BorrowedStorage::Places& places);
  void store_results();
  c10::IValue made(const Argument& argument) const;

  const BoundProgram& bound_;
  const Operator& op_;
  Form form_;
  c10::OperatorHandle handle_;
  c10::Stack arguments_;
  c10::Stack stack_;
  bool copies_lists_ = false;
  // Whether each result is a new tensor or none, made of the arguments alone.
  bool makes_new_tensors_ = false;
  // Of the form with borrowed storage: of each result, where it goes, and its allocation, if that is known.
  std::vector<at::Tensor> targets_;
  std::vector<std::optional<Allocation>> allocations_;
  // Borrowed storage that has not come back. A tensor that kept some may outlive the step.
  std::unique_ptr<BorrowedStorage::Count> borrowed_;
};

Step boxed_step(const BoundProgram& bound, const Operator& op);

}  // namespace overdrive::replay
