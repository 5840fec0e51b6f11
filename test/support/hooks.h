// Hooks of every kind from a lambda. A hook belongs to the node or tensor it is put on.
#pragma once

#include "test/support/graph.h"
#include "test/support/timeline.h"

namespace overdrive::test {

using GradFunction = std::function<at::Tensor(const at::Tensor&)>;
using PreFunction = std::function<variable_list(const variable_list&)>;
using PostFunction = std::function<variable_list(const variable_list& outputs, const variable_list& inputs)>;
using TensorFunction = std::function<void(const at::Tensor&)>;

void add_tensor_hook(const at::Tensor& tensor, GradFunction hook);  // Tensor::register_hook
void add_tensor_pre_hook(const NodePtr& node, PreFunction hook);    // the same, on a node
void add_retains_grad_hook(const NodePtr& node, size_t output, PreFunction hook);
void add_pre_hook(const NodePtr& node, PreFunction hook);
void add_post_hook(const NodePtr& node, PostFunction hook);
void set_post_accumulate_hook(const at::Tensor& leaf, TensorFunction hook);

// Hooks that note "LABEL VALUE" and change nothing.
GradFunction note_grad(Timeline& timeline, std::string label);
PreFunction note_inputs(Timeline& timeline, std::string label);
PostFunction note_outputs(Timeline& timeline, std::string label);
TensorFunction note_tensor(Timeline& timeline, std::string label);

// Runs `forward` while every tensor that an op saves is packed and unpacked by hooks;
// `on_unpack` is called in the backward, before the tensor is handed out.
void with_unpack_hook(std::function<void()> on_unpack, const std::function<void()>& forward);

}  // namespace overdrive::test
