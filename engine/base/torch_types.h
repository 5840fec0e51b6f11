// LibTorch's own types under names that hold for every supported version, and the
// one include of its engine header. Only this file and host.* test the version.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace overdrive::base {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::Node;
using torch::autograd::variable_list;

// c10::intrusive_ptr since 2.13, std::shared_ptr before.
using NodePtr = decltype(Edge::function);
using WeakNodePtr = std::conditional_t<std::is_same_v<NodePtr, std::shared_ptr<Node>>, std::weak_ptr<Node>,
                                       c10::weak_intrusive_ptr<Node>>;

template <typename T, typename... Args>
NodePtr make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return std::make_shared<T>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  }
}

}  // namespace overdrive::base
