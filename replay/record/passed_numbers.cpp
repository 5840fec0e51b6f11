#include "replay/record/passed_numbers.h"

#include "engine/base/torch_types.h"
#include "engine/operators/tensors_in.h"
#include "replay/record/compare.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

namespace overdrive::replay {

namespace {

// A node whose backward the program wrote, in Python or in C++.
bool is_of_the_program(const base::Node& node) {
  const std::string_view name = typeid(node).name();
  return name.find("PyNode") != std::string_view::npos || name.find("CppNode") != std::string_view::npos;
}

void note(const c10::IValue& value, std::vector<double>& found) {
  if (value.isDouble()) found.push_back(value.toDouble());
  engine::for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
        tensor.scalar_type() == at::kDouble && tensor.device().is_cpu() && tensor.has_storage() &&
        !tensor._is_zerotensor())
      found.push_back(*tensor.const_data_ptr<double>());
  });
}

}  // namespace

std::unique_ptr<at::ObserverContext> PassedNumbers::begin_operator(const at::RecordFunction& function) {
  if (!function.operator_schema() || (!calls_.empty() && calls_.back().is_of_libtorch)) return nullptr;
  Numbers call{.is_of_libtorch = true, .given = {}};
  for (const c10::IValue& value : engine::host::inputs_of(function)) note(value, call.given);
  calls_.push_back(std::move(call));
  return std::make_unique<Call>(*this);
}

std::unique_ptr<at::ObserverContext> PassedNumbers::begin_node(const at::RecordFunction& function) {
  const auto node = torch::autograd::get_current_node();
  Numbers call{.is_of_libtorch = !node || !is_of_the_program(*node), .given = {}};
  if (const auto known = of_nodes_.find(static_cast<uint64_t>(function.seqNr())); known != of_nodes_.end())
    call.given = known->second;
  calls_.push_back(std::move(call));
  return std::make_unique<Call>(*this);
}

bool PassedNumbers::has(double number) const {
  return !calls_.empty() && std::any_of(calls_.back().given.begin(), calls_.back().given.end(),
                                        [&](double given) { return same_bits(given, number); });
}

// The node was made before the operator was called.
void PassedNumbers::keep_for_backward(double number) {
  of_nodes_[at::sequence_number::peek() - 1].push_back(number);
}

}  // namespace overdrive::replay
