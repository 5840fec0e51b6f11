// LibTorch as the fuzzer sees it: tests are users, so the umbrella header, parsed once.
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/torch.h>

namespace overdrive::fuzz {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePtr = decltype(Edge::function);

}  // namespace overdrive::fuzz
