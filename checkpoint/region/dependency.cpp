#include "checkpoint/region/dependency.h"

#include "checkpoint/region/tape.h"
#include "engine/base/mutex.h"
#include "engine/base/no_destructor.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

namespace overdrive::checkpoint {

namespace {

class Fork final : public base::Node {
 public:
  explicit Fork(base::edge_list next) : Node(std::move(next)) {}
  std::string name() const override { return "Fork"; }
  base::variable_list apply(base::variable_list&& gradients) override { return {std::move(gradients[0])}; }
};

class Join final : public base::Node {
 public:
  explicit Join(base::edge_list next) : Node(std::move(next)) {}
  std::string name() const override { return "Join"; }
  base::variable_list apply(base::variable_list&& gradients) override {
    return {std::move(gradients[0]), at::Tensor()};
  }
};

struct Phony {
  at::Device device;
  bool requires_grad;
  at::Tensor tensor;
};

struct Phonies {
  base::Mutex mutex;
  std::vector<Phony> known OVERDRIVE_GUARDED_BY(mutex);
};

Phonies& phonies() {
  // Never destroyed: LibTorch may be gone when statics are.
  static base::NoDestructor<Phonies> all;
  return *all;
}

// It outlives the modes that the thread is in, so it is made outside of them.
at::Tensor make_phony(const at::Device& device, bool requires_grad) {
  const c10::InferenceMode no_inference(false);
  const c10::impl::ExcludeDispatchKeyGuard no_layers(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
  return at::empty({0}, at::TensorOptions(device).dtype(at::kFloat)).set_requires_grad(requires_grad);
}

}  // namespace

at::Tensor phony(const at::Device& device, bool requires_grad) {
  Phonies& all = phonies();
  base::MutexLock lock(all.mutex);
  for (const Phony& known : all.known) {
    if (known.device == device && known.requires_grad == requires_grad) return known.tensor;
  }
  all.known.push_back({device, requires_grad, make_phony(device, requires_grad)});
  return all.known.back().tensor;
}

Forked fork(const at::Tensor& tensor) {
  auto node = base::make_node<Fork>(base::edge_list{torch::autograd::impl::gradient_edge(tensor)});
  at::Tensor same = with_history(tensor, node);
  return {std::move(same), with_history(phony(tensor.device(), false), node)};
}

at::Tensor join(const at::Tensor& tensor, const at::Tensor& phony) {
  return with_history(tensor,
                      base::make_node<Join>(base::edge_list{torch::autograd::impl::gradient_edge(tensor),
                                                            torch::autograd::impl::gradient_edge(phony)}));
}

}  // namespace overdrive::checkpoint
