// A tensor with its first two derivatives along the direction of a pass, and what the rules for operators are
// made of. An operator's key sends it to the rules (Note [Jets]). Any thread inside the pass. Leaves the pass
// to second_derivative.cpp. Private.
#pragma once

#include "engine/operators/keys.h"
#include "forward_ad/drivers/kernel_above_all.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>
#include <unordered_map>

namespace overdrive::forward_ad::taylor {

// Note [Jets]
// Nested forward mode carries a second derivative as a tangent of a tangent, through layers. A pass over jets
// carries value, first and second derivative side by side, and each operator with a rule makes all three. The
// rules are made of differentiable operators, so that reverse mode differentiates the results.
//
// The pass holds LibTorch's level 0 alone (Note [Bare levels]). The tangent of a tensor with derivatives is a
// mark: a second view of the tensor's own memory, whose backend metadata holds the derivatives. So they live as
// long as the tensor. LibTorch treats a mark as it treats tangents: it refuses custom Functions, and an
// operator that the rules did not see gives its result a tangent of its own. Such a tangent is no mark, so the
// pass notices the loss and gives up. Reverse mode inside the function would read saved tensors without marks,
// so a node that runs makes the pass give up, too. The driver then takes nested forward mode.
//
// The rules stand on the key of functional_call(), above the one of forward_ad/rules (Note [Forward rules of
// our own]), which knows the same operators. An operator that is a composition of others (linear apart) is
// taken apart and comes back. Any other operator without a rule makes the pass give up, and so does one that
// writes into memory that others see. Rejected: a table of derivatives by address of the tensor; a tensor that
// LibTorch copies on its own drops out of it without a sign.

// Undefined tensors are zero.
struct Derivatives {
  at::Tensor first, second;
};

// Null for a tensor without derivatives. Gives up where they were lost.
const Derivatives* derivatives_of(const at::Tensor& tensor);

// Gives the tensor its derivatives. Integers have none.
at::Tensor with_derivatives(at::Tensor value, const Derivatives& derivatives);

// An input of a pass: the tensor with its direction.
at::Tensor input_of_pass(const at::Tensor& value, const at::Tensor& direction);

// Ends the pass of the process with an error, which the driver does not pass on.
[[noreturn]] void give_up(const std::string& why);

// Operators inside a rule: no tensor has derivatives.
class InsideRule {
 private:
  c10::impl::ExcludeDispatchKeyGuard no_rules_{engine::keys::kAboveAll};
  c10::AutoFwGradMode no_marks_{false};
};

// Sends the operators of this thread to the rules. One at a time in the process.
class Pass {
 public:
  Pass();
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  // Why the pass gave up; empty while it has not.
  static std::string given_up_because();

 private:
  c10::impl::IncludeDispatchKeyGuard rules_{engine::keys::kAboveAll};
};

// The rules by operator. They are called for operators that get a tensor with derivatives.
class Rules {
 public:
  using Boxed = void (*)(const c10::OperatorHandle&, torch::jit::Stack*);

  template <typename Function>
  void impl(const char* name, Function function) {
    add(name, {c10::KernelFunction::makeFromUnboxedFunction(function), nullptr});
  }
  void impl_boxed(const char* name, Boxed function) { add(name, {{}, function}); }

  // Whether the operator has a rule, which then has run.
  bool run(const c10::OperatorHandle& op, torch::jit::Stack* stack) const;

 private:
  struct Rule {
    c10::KernelFunction unboxed;
    Boxed boxed;
  };
  void add(const char* name, Rule rule);

  std::unordered_map<const void*, Rule> by_schema_;
};

// Each adds the rules of one file.
void add_linear_jets(Rules& table);
void add_product_jets(Rules& table);
void add_elementwise_jets(Rules& table);
void add_activation_jets(Rules& table);

}  // namespace overdrive::forward_ad::taylor
