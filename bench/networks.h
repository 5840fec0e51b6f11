// Networks whose backward is measured on an accelerator, each the smallest that has the shape of its kind. A
// network owns its parameters and its data; one thread at a time. Knows no engine.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace overdrive::bench {

struct Network {
  torch::autograd::variable_list parameters;
  std::function<at::Tensor()> loss;  // a forward; its graph is consumed by one backward

  void drop_gradients() const {
    for (const at::Tensor& p : parameters) p.mutable_grad().reset();
  }
};

struct NetworkKind {
  std::string name;
  std::string what;
  std::function<Network(at::Device, bool quick)> build;
};

const std::vector<NetworkKind>& network_kinds();

}  // namespace overdrive::bench
