// LibTorch as the fuzzer sees it.
#pragma once

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace overdrive::fuzz {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePtr = decltype(Edge::function);

}  // namespace overdrive::fuzz
