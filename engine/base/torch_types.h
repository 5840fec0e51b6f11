// LibTorch's types under names for every supported version, and the one include of LibTorch's engine header.
// Types only. Only this file and engine/host/ test the version.
//
// An include guard, not #pragma once: this header is precompiled, and a compiler cache may bring a precompiled
// header that was made when a comment here read otherwise. GCC would then take the two texts for two files.
#ifndef OVERDRIVE_ENGINE_BASE_TORCH_TYPES_H
#define OVERDRIVE_ENGINE_BASE_TORCH_TYPES_H

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace overdrive::base {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::Node;
using torch::autograd::variable_list;

// c10::intrusive_ptr since 2.13, std::shared_ptr before.
using NodePtr = decltype(Edge::function);
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#define OVERDRIVE_SHARED_NODES
using WeakNodePtr = std::weak_ptr<Node>;
#else
using WeakNodePtr = c10::weak_intrusive_ptr<Node>;
#endif

template <typename T, typename... Args>
NodePtr make_node(Args&&... args) {
#ifdef OVERDRIVE_SHARED_NODES
  // The host's deleter destroys a deep graph without recursion.
  return NodePtr(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
#else
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
#endif
}

// The base of Overdrive's nodes that hold a part of the graph outside their edges. Such a node overrides
// release_resources() and calls the base class, because since 2.13 a weak reference to the node would otherwise
// keep that part alive. Before 2.13 the destructor runs at that moment.
struct HoldingNode : Node {
  using Node::Node;
#ifdef OVERDRIVE_SHARED_NODES
  virtual void release_resources() {}
#endif
};

// An engine in front of another engine. The other engine answers the virtuals that only some versions have.
class EngineBefore : public Engine {
 public:
  virtual Engine& previous() const = 0;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  std::vector<std::unique_ptr<torch::autograd::NodeCreationHook>> get_node_creation_hooks() override {
    return previous().get_node_creation_hooks();
  }
#endif
};

}  // namespace overdrive::base

#endif
