#include "test/support/hooks.h"

#include "engine/engine.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace overdrive::test {

namespace {

using torch::autograd::FunctionPostHook;
using torch::autograd::FunctionPreHook;
using torch::autograd::PostAccumulateGradHook;

struct PreHook final : FunctionPreHook {
  explicit PreHook(PreFunction function) : function_(std::move(function)) {}
  variable_list operator()(const variable_list& grads) override { return function_(grads); }
  PreFunction function_;
};

struct PostHook final : FunctionPostHook {
  explicit PostHook(PostFunction function) : function_(std::move(function)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    return function_(outputs, inputs);
  }
  PostFunction function_;
};

struct AccumulateHook final : PostAccumulateGradHook {
  explicit AccumulateHook(TensorFunction function) : function_(std::move(function)) {}
  void operator()(const at::Tensor& tensor) override { function_(tensor); }
  TensorFunction function_;
};

// Keeps detach(): keeping an output itself would make it own its own node.
struct UnpackHook final : torch::autograd::SavedVariableHooks {
  explicit UnpackHook(std::function<void()> on_unpack) : on_unpack_(std::move(on_unpack)) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    on_unpack_();
    return packed_;
  }
  std::function<void()> on_unpack_;
  at::Tensor packed_;
};

// The seam that C++ has for default saved-tensor hooks: the default engine is asked.
// Serves a forward only and never runs a backward; never destroyed.
struct PackingEngine final : Engine {
  ~PackingEngine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return std::make_unique<UnpackHook>(on_unpack_);
  }
  std::function<void()> on_unpack_;
};

PackingEngine& packing_engine() {
  static auto* engine = new PackingEngine;
  return *engine;
}
Engine& packing_stub() { return packing_engine(); }

std::string values(const variable_list& tensors) {
  std::ostringstream text;
  for (const auto& tensor : tensors) {
    tensor.defined() ? text << " " << value_of(tensor) : text << " undefined";
  }
  return text.str();
}

}  // namespace

void add_tensor_hook(const at::Tensor& tensor, GradFunction hook) {
  tensor.register_hook([hook = std::move(hook)](at::Tensor grad) { return hook(grad); });
}
void add_tensor_pre_hook(const NodePtr& node, PreFunction hook) {
  node->add_tensor_pre_hook(std::make_unique<PreHook>(std::move(hook)));
}
void add_retains_grad_hook(const NodePtr& node, size_t output, PreFunction hook) {
  node->add_retains_grad_hook(std::make_unique<PreHook>(std::move(hook)), output);
}
void add_pre_hook(const NodePtr& node, PreFunction hook) {
  node->add_pre_hook(std::make_unique<PreHook>(std::move(hook)));
}
void add_post_hook(const NodePtr& node, PostFunction hook) {
  node->add_post_hook(std::make_unique<PostHook>(std::move(hook)));
}
void set_post_accumulate_hook(const at::Tensor& leaf, TensorFunction hook) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<AccumulateHook>(std::move(hook)));
}

GradFunction note_grad(Timeline& timeline, std::string label) {
  return [&timeline, label](const at::Tensor& grad) {
    timeline.add(label, values({grad}));
    return grad;
  };
}
PreFunction note_inputs(Timeline& timeline, std::string label) {
  return [&timeline, label](const variable_list& grads) {
    timeline.add(label, values(grads));
    return grads;
  };
}
PostFunction note_outputs(Timeline& timeline, std::string label) {
  return [&timeline, label](const variable_list& outputs, const variable_list& inputs) {
    timeline.add(label, values(outputs), " from", values(inputs));
    return outputs;
  };
}
TensorFunction note_tensor(Timeline& timeline, std::string label) {
  return [&timeline, label](const at::Tensor& tensor) { timeline.add(label, values({tensor.grad()})); };
}

void with_unpack_hook(std::function<void()> on_unpack, const std::function<void()>& forward) {
  // Ours must not have the packing engine below it: it would forward every backward there.
  const bool ours = installed();
  uninstall();
  packing_engine().on_unpack_ = std::move(on_unpack);
  torch::autograd::set_default_engine_stub(&packing_stub);
  forward();
  packing_engine().on_unpack_ = nullptr;
  torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
  if (ours) install();
}

}  // namespace overdrive::test
