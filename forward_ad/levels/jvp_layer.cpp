#include "forward_ad/levels/jvp_layer.h"

#include "forward_ad/layers/host_level.h"
#include "forward_ad/levels/level_registry.h"

#include <c10/core/GradMode.h>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

namespace {
// This thread's active levels. A thread of a pool gets the caller's layers with its thread-local state, but not
// the list of levels, so the list is made of the layers below the new one.
std::vector<uint64_t> levels_here(uint64_t innermost, std::optional<uint64_t> bare) {
  if (active_levels().size() > 1) return active_levels();
  std::vector<uint64_t> levels;
  if (bare) levels.push_back(*bare);
  const LayerStack& stack = ft::getDynamicLayerStack();
  for (size_t i = 0; i + 1 < stack.size(); ++i) {
    const Layer& layer = stack[i];
    auto level = layer.key() == ft::TransformType::Jvp ? level_of_life(life_of(layer)) : std::nullopt;
    if (level) levels.push_back(*level);
  }
  levels.push_back(innermost);
  return levels;
}

}  // namespace

JvpLayer::JvpLayer(uint64_t idx, std::optional<uint64_t> bare)
    : idx_(idx), forward_mode_(c10::AutogradState::get_tls_state().get_fw_grad_mode()) {
  host_level::acquire();
  const size_t layers = ft::getDynamicLayerStack().size();
  try {
    enter(bare);
  } catch (...) {  // for want of memory
    drop_layers(layers);
    c10::AutogradState::get_tls_state().set_fw_grad_mode(forward_mode_);
    host_level::release();
    throw;
  }
}

void JvpLayer::enter(std::optional<uint64_t> bare) {
  ft::initAndPushDynamicLayer(ft::TransformType::Jvp, std::nullopt, std::nullopt, std::nullopt, forward_mode_);
  c10::AutogradState::get_tls_state().set_fw_grad_mode(true);
  rules_.emplace();
  stack_ = ft::getDynamicLayerStack();
  active_ = levels_here(idx_, bare);
  adopted_ = active_.size() > active_levels().size();
  if (adopted_) set_active_levels(active_);
}

JvpLayer::~JvpLayer() = default;

JvpLayer& JvpLayer::of(const ForwardADLevel& level) {
  auto* layer = dynamic_cast<JvpLayer*>(level.layer());
  TORCH_CHECK(layer != nullptr, "Forward AD level ", level.idx(),
              " was opened in the registry alone; open it with a DualLevel to use dual numbers.");
  return *layer;
}

void JvpLayer::check_can_leave() const {
  if (forced_) return;
  TORCH_CHECK(visitors_ == 0, "Forward AD level ", idx_, " cannot be released: ", visitors_.load(),
              " other scope(s) are inside it (LevelScope).");
  TORCH_CHECK(position_here(life()) == ft::getDynamicLayerStack().size(), "Forward AD level ", idx_,
              " cannot be released: a layer that was pushed inside it is still on the layer stack.");
}

void JvpLayer::leave() noexcept {
  if (size_t position = position_here(life())) drop_layers(position - 1);
  rules_.reset();
  c10::AutogradState::get_tls_state().set_fw_grad_mode(forward_mode_);
  if (adopted_) set_active_levels({});
  host_level::release();
}

size_t JvpLayer::check_here() const {
  size_t position = position_here(life());
  TORCH_CHECK(position > 0, "Forward AD level ", idx_,
              " is open, but this thread has not entered it. Put `LevelScope here(level)` around the use. "
              "Levels active on this thread: ",
              active_levels_text(), ".");
  return position;
}

at::Tensor JvpLayer::wrap(const at::Tensor& tensor) const {
  return ft::makeTensorWrapper(tensor, stack_.back().interpreter());
}

std::optional<uint64_t> level_of_life(LayerLife life) {
  for (uint64_t idx : LevelRegistry::open_levels()) {
    auto level = LevelRegistry::try_get_by_idx(idx);
    auto* layer = level ? dynamic_cast<JvpLayer*>(level->layer()) : nullptr;
    if (layer != nullptr && layer->life() == life) return idx;
  }
  return std::nullopt;
}

}  // namespace overdrive::forward_ad
