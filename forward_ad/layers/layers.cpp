#include "forward_ad/layers/layers.h"

#include "engine/base/of_thread.h"

#include <ATen/functorch/PlumbingHelper.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

namespace {
// The flag is private and has no accessor. Naming a private member as a template argument of an explicit
// instantiation is the one access the language allows.
template <std::shared_ptr<bool> ft::TensorWrapper::*Member>
struct LifeHandle {
  friend const std::shared_ptr<bool>& life_handle(const ft::TensorWrapper& wrapper) { return wrapper.*Member; }
};
template struct LifeHandle<&ft::TensorWrapper::is_alive_>;
const std::shared_ptr<bool>& life_handle(const ft::TensorWrapper& wrapper);

struct LayersOfThread {
  LayerStack grad;
};
LayerStack& grad_layers() { return base::OfThread<LayersOfThread>::get().grad; }

}  // namespace

LayerLife life_of(const Layer& layer) { return layer.interpreter().is_alive_ptr().get(); }

LayerLife life_of(const ft::TensorWrapper& wrapper) { return life_handle(wrapper).get(); }

size_t position_here(LayerLife life) {
  const LayerStack& stack = ft::getDynamicLayerStack();
  for (size_t position = stack.size(); position > 0; --position) {
    if (life_of(stack[position - 1]) == life) return position;
  }
  return 0;
}

ft::TensorWrapper* living_wrapper(at::Tensor& tensor) {
  for (;;) {
    auto* wrapper = ft::maybeGetTensorWrapper(tensor);
    if (wrapper == nullptr || wrapper->is_alive()) return wrapper;
    tensor = at::Tensor(wrapper->value());
  }
}

at::Tensor unwrap_from(const at::Tensor& tensor, LayerLife life) {
  if (!tensor.defined()) return tensor;
  auto* wrapper = ft::maybeGetTensorWrapper(tensor);
  return wrapper != nullptr && life_of(*wrapper) == life ? wrapper->value() : tensor;
}

at::Tensor innermost_of(at::Tensor tensor) {
  for (;;) {
    if (auto* wrapper = ft::maybeGetTensorWrapper(tensor)) {
      tensor = at::Tensor(wrapper->value());
    } else if (auto* batched = ft::maybeGetBatchedImpl(tensor)) {
      tensor = at::Tensor(batched->value());
    } else {
      return tensor;
    }
  }
}

bool is_batched(at::Tensor tensor) {
  while (auto* wrapper = ft::maybeGetTensorWrapper(tensor)) tensor = at::Tensor(wrapper->value());
  return ft::maybeGetBatchedImpl(tensor) != nullptr;
}

BelowLayer::BelowLayer(size_t keep) {
  taken_.reserve(ft::getDynamicLayerStack().size());  // a layer that was taken must not be lost
  while (ft::getDynamicLayerStack().size() > keep) taken_.push_back(ft::popDynamicLayer());
}

BelowLayer::~BelowLayer() {
  for (; !taken_.empty(); taken_.pop_back()) ft::pushDynamicLayer(std::move(taken_.back()));
}

GradLayer::GradLayer() : grad_mode_(c10::GradMode::is_enabled()) {
  grad_layers().reserve(grad_layers().size() + 1);  // nothing throws once the layer is there
  position_ = static_cast<size_t>(
      ft::initAndPushDynamicLayer(ft::TransformType::Grad, std::nullopt, std::nullopt, grad_mode_));
  grad_layers().push_back(ft::getDynamicLayerStack().back());
  life_ = life_of(grad_layers().back());
  c10::GradMode::set_enabled(true);
}

GradLayer::~GradLayer() {
  grad_layers().pop_back();
  drop_layers(position_ - 1);
  c10::GradMode::set_enabled(grad_mode_);
}

at::Tensor GradLayer::wrap(const at::Tensor& tensor) const {
  return ft::makeTensorWrapper(tensor, static_cast<int64_t>(position_));
}

at::Tensor GradLayer::unwrap(const at::Tensor& tensor) const { return unwrap_from(tensor, life_); }

std::optional<Layer> own_grad_layer(LayerLife life) {
  for (const Layer& layer : grad_layers()) {
    if (life_of(layer) == life) return layer;
  }
  return std::nullopt;
}

VmapLayer::VmapLayer(int64_t batch, ft::RandomnessType randomness)
    : batch_(batch),
      position_(static_cast<size_t>(ft::initAndPushDynamicLayer(ft::TransformType::Vmap, batch, randomness))) {}

VmapLayer::~VmapLayer() { drop_layers(position_ - 1); }

at::Tensor VmapLayer::wrap(const at::Tensor& tensor, int64_t dim) const {
  return ft::makeBatched(tensor, dim, static_cast<int64_t>(position_));
}

bool VmapLayer::hides_one_of(const at::Tensor& tensor) const {
  return std::get<1>(ft::unwrapTensorAtLevel(tensor, static_cast<int64_t>(position_))).has_value();
}

at::Tensor VmapLayer::unwrap(const at::Tensor& tensor, int64_t dim) const {
  auto [value, hidden] = ft::unwrapTensorAtLevel(tensor, static_cast<int64_t>(position_));
  if (hidden.has_value()) return value.movedim(*hidden, dim);
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes.insert(sizes.begin() + dim, batch_);
  return value.unsqueeze(dim).expand(sizes);
}

void drop_layers(size_t keep) noexcept {
  while (ft::getDynamicLayerStack().size() > keep) ft::popDynamicLayerAndDeleteMetadata();
}

}  // namespace overdrive::forward_ad
