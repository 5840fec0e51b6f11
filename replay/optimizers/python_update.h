// What the updates of PyTorch's optimizers for Python have in common: numbers as operators take them, and the
// checks of their lists. Note [Optimizers of Python]. Any thread.
#pragma once

#include "replay/direct/element_chain.h"

#include <torch/library.h>

#include <algorithm>
#include <initializer_list>

namespace overdrive::replay {

// Of a step count, or another number that an optimizer keeps in a tensor. load_state_dict() gives some of them
// the type of the parameter.
inline double read(const at::Tensor& kept) {
  switch (kept.scalar_type()) {
    case at::kDouble:
      return *kept.const_data_ptr<double>();
    case at::kHalf:
      return *kept.const_data_ptr<at::Half>();
    case at::kBFloat16:
      return *kept.const_data_ptr<at::BFloat16>();
    default:
      return *kept.const_data_ptr<float>();
  }
}

inline void check_sizes(at::TensorList parameters, std::initializer_list<at::TensorList> others,
                        const at::Tensor& numbers, int64_t count) {
  TORCH_CHECK(std::all_of(others.begin(), others.end(),
                          [&](const at::TensorList& each) { return each.size() == parameters.size(); }),
              "an optimizer's lists differ in length.");
  TORCH_CHECK(numbers.scalar_type() == at::kDouble && numbers.numel() == count && numbers.is_contiguous(),
              "an optimizer's numbers are ", count, " of type double.");
}

// One more in the step count; returns it.
double counted(const at::Tensor& step);

// Of Adam, NAdam and RAdam.
struct MomentNumbers {
  double rate, beta1, beta2, epsilon, decay, decoupled;
};
// The gradient with the decay.
ElementChain::Value with_decay(ElementChain& chain, ElementChain::Value gradient, ElementChain::Value parameter,
                               double decay);
// Their decay and their averages, in PyTorch's order. Returns the gradient with the decay.
ElementChain::Value note_averages(ElementChain& chain, ElementChain::Value parameter,
                                  ElementChain::Value gradient, ElementChain::Value average,
                                  ElementChain::Value square, const MomentNumbers& given);

// Adagrad, Adamax, NAdam and RAdam, into the library of Overdrive's operators.
void define_updates_by_steps(torch::Library& library);

}  // namespace overdrive::replay
