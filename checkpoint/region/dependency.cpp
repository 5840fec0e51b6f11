#include "checkpoint/region/dependency.h"

#include "checkpoint/region/tape.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

namespace overdrive::checkpoint {

namespace {

class Wait final : public base::Node {
 public:
  explicit Wait(base::edge_list next) : Node(std::move(next)) {}
  std::string name() const override { return "WaitInBackward"; }
  base::variable_list apply(base::variable_list&& gradients) override { return {std::move(gradients[0])}; }
};

class Release final : public base::Node {
 public:
  explicit Release(base::edge_list next) : Node(std::move(next)) {}
  std::string name() const override { return "ReleaseInBackward"; }
  base::variable_list apply(base::variable_list&& gradients) override {
    return {std::move(gradients[0]), at::Tensor()};
  }
};

struct Token {
  at::Device device;
  bool requires_grad;
  at::Tensor tensor;
};

struct Tokens {
  base::ProcessMutex mutex{"tokens of dependencies"};
  std::vector<Token> known OVERDRIVE_GUARDED_BY(mutex);
};

Tokens& tokens() {
  // Never destroyed: LibTorch may be gone when statics are.
  static base::NoDestructor<Tokens> all;
  return *all;
}

// A token outlives the modes of the thread, so it is made outside of these modes.
at::Tensor make_token(const at::Device& device, bool requires_grad) {
  const c10::InferenceMode no_inference(false);
  const c10::impl::ExcludeDispatchKeyGuard no_layers(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
  return at::empty({0}, at::TensorOptions(device).dtype(at::kFloat)).set_requires_grad(requires_grad);
}

}  // namespace

at::Tensor dependency_token(const at::Device& device, bool requires_grad) {
  Tokens& all = tokens();
  base::MutexLock lock(all.mutex);
  for (const Token& known : all.known) {
    if (known.device == device && known.requires_grad == requires_grad) return known.tensor;
  }
  all.known.push_back({device, requires_grad, make_token(device, requires_grad)});
  return all.known.back().tensor;
}

Waiting wait_in_backward(const at::Tensor& tensor) {
  TORCH_CHECK(is_differentiable(tensor), "wait_in_backward: the tensor ",
              tensor.defined() ? "has a type without gradients" : "is undefined",
              ", so there is no gradient that ", "could wait.");
  auto node = base::make_node<Wait>(base::edge_list{torch::autograd::impl::gradient_edge(tensor)});
  at::Tensor same = with_history(tensor, node);
  return {std::move(same), with_history(dependency_token(tensor.device(), false), node)};
}

at::Tensor release_in_backward(const at::Tensor& tensor, const at::Tensor& token) {
  TORCH_CHECK(is_differentiable(tensor), "release_in_backward: the tensor ",
              tensor.defined() ? "has a type without gradients" : "is undefined",
              ", so there is no gradient that ", "could come first.");
  TORCH_CHECK(token.defined() && token.sizes() == at::IntArrayRef({0}) && token.scalar_type() == at::kFloat,
              "release_in_backward: the second tensor is no token; tokens come from wait_in_backward(), "
              "dependency_token() and Checkpointing::recompute_before().");
  return with_history(tensor,
                      base::make_node<Release>(base::edge_list{torch::autograd::impl::gradient_edge(tensor),
                                                               torch::autograd::impl::gradient_edge(token)}));
}

}  // namespace overdrive::checkpoint
