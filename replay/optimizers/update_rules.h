// The updates of LibTorch's optimizers to one parameter: the operators in order, and the numbers in them as
// formulas of the options and the step count. Functions of their arguments; any thread. optimizer_numbers.h
// finds the updates in a recording and checks every number.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace overdrive::replay {

// One operator of an update: its name without the overload, and the number it is given, if it is one of the
// options'.
struct UpdateOperator {
  std::string_view name;
  bool has_number = false;
  double number = 0;
};

// The class of an optimizer; kUnknown for other classes and for classes derived from these.
enum class OptimizerKind : uint8_t { kUnknown, kSgd, kAdam, kAdamW, kRmsProp, kAdagrad };

OptimizerKind kind_of(const torch::optim::Optimizer& optimizer);
// The update of a parameter with these options as the step with this count makes it.
std::vector<UpdateOperator> update_of(OptimizerKind kind, const torch::optim::OptimizerOptions& options,
                                      int64_t step);
// The tensors of the state, to be told from others.
std::vector<const c10::TensorImpl*> tensors_of(OptimizerKind kind,
                                               const torch::optim::OptimizerParamState& state);
// Whether the state still has these tensors.
bool has_tensors(OptimizerKind kind, const torch::optim::OptimizerParamState& state,
                 const std::vector<const c10::TensorImpl*>& tensors);
// How many steps the state has seen; 0 where the optimizer does not count.
int64_t steps_of(OptimizerKind kind, const torch::optim::OptimizerParamState& state);
void set_steps(OptimizerKind kind, torch::optim::OptimizerParamState& state, int64_t steps);

}  // namespace overdrive::replay
