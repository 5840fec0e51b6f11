// Names of the tensors of modules and of an optimizer, as a step file has them: those of state_dict(), and
// "optimizer.exp_avg.0.weight". Functions of their arguments; any thread.
#pragma once

#include "replay/optimizers/update_rules.h"

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::replay {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Of several modules each name begins with the module's number.
NamedTensors names_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
// `parameters`: names that are known.
NamedTensors names_of(torch::optim::Optimizer& optimizer, const NamedTensors& parameters);
// Adds tensors that have no name yet. A name that another tensor has begins with the prefix, or is left out.
void add_names(NamedTensors& names, const NamedTensors& more, const std::string& prefix);

}  // namespace overdrive::replay
