#include "replay/file/names.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace overdrive::replay {

NamedTensors names_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  NamedTensors names;
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string prefix = modules.size() > 1 ? c10::str(i, ".") : "";
    for (const auto& each : modules[i]->named_parameters())
      names.emplace_back(prefix + each.key(), each.value());
    for (const auto& each : modules[i]->named_buffers()) names.emplace_back(prefix + each.key(), each.value());
  }
  return names;
}

NamedTensors names_of(torch::optim::Optimizer& optimizer, const NamedTensors& parameters) {
  static constexpr std::array<const char*, 3> moments{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
      mean_squares{"square_avg", "momentum_buffer", "grad_avg"}, momentum{"momentum_buffer", "", ""},
      sums{"sum", "", ""};
  const OptimizerKind kind = kind_of(optimizer);
  const auto& kinds = kind == OptimizerKind::kSgd       ? momentum
                      : kind == OptimizerKind::kRmsProp ? mean_squares
                      : kind == OptimizerKind::kAdagrad ? sums
                                                        : moments;
  NamedTensors names;
  size_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto known = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const auto& each) { return each.second.is_same(parameter); });
      const std::string name = known == parameters.end() ? c10::str("parameter.", index) : known->first;
      ++index;
      if (known == parameters.end()) names.emplace_back(name, parameter);
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state == optimizer.state().end()) continue;
      size_t place = 0;
      for (const c10::TensorImpl* impl : tensors_of(kind, *state->second)) {
        auto* raw = const_cast<c10::TensorImpl*>(impl);
        const at::Tensor tensor(
            c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(raw));
        if (place < kinds.size() && tensor.defined())
          names.emplace_back(c10::str("optimizer.", kinds[place], ".", name), tensor);
        ++place;
      }
    }
  }
  return names;
}

void add_names(NamedTensors& names, const NamedTensors& more, const std::string& prefix) {
  std::unordered_set<std::string> taken;
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& [name, tensor] : names) {
    taken.insert(name);
    known.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : more) {
    if (!tensor.defined() || !known.insert(tensor.unsafeGetTensorImpl()).second) continue;
    for (const std::string& each : {name, prefix + "." + name}) {
      if (!taken.insert(each).second) continue;
      names.emplace_back(each, tensor);
      break;
    }
  }
}

}  // namespace overdrive::replay
