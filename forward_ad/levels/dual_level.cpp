#include "forward_ad/levels/dual.h"

#include "forward_ad/levels/bare_level.h"
#include "forward_ad/layers/host_level.h"
#include "forward_ad/levels/jvp_layer.h"
#include "forward_ad/levels/level_registry.h"
#include "forward_ad/rules/rules.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <utility>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

DualLevel::DualLevel() : DualLevel(Ground::kLayer) {}

namespace {

uint64_t next_idx_in_normal_mode() {
  TORCH_CHECK(
      !c10::InferenceMode::is_enabled(),
      "A forward AD level cannot be opened in inference mode, where operators drop tangents. Leave it with "
      "`c10::InferenceMode normal(false)`, or use a driver, which does so.");
  return ForwardADLevel::get_next_idx();
}

}  // namespace

DualLevel::DualLevel(Ground ground) : idx_(next_idx_in_normal_mode()) {
  try {
    auto level = ForwardADLevel::get_by_idx(idx_);
    std::unique_ptr<LevelLayer> layer;
    if (ground == Ground::kBareIfPossible) layer = BareLevel::try_open(idx_);
    if (layer == nullptr) layer = std::make_unique<JvpLayer>(idx_);
    level->attach(std::move(layer));
  } catch (...) {
    ForwardADLevel::release_idx(idx_);
    throw;
  }
}

DualLevel::~DualLevel() {
  // Nothing may leave a destructor; what could throw is a registry that is not ours.
  try {
    while (is_active_here(idx_) && ForwardADLevel::try_get_by_idx(idx_)) {
      uint64_t innermost = active_levels().back();
      if (auto* layer = ForwardADLevel::get_by_idx(innermost)->layer()) layer->force();
      ForwardADLevel::release_idx(innermost);
    }
  } catch (const std::exception&) {
  }
}

void DualLevel::close() {
  if (ForwardADLevel::try_get_by_idx(idx_)) host_level::check();
  ForwardADLevel::release_idx(idx_);
}

struct LevelScope::State {
  explicit State(std::shared_ptr<ForwardADLevel> entered)
      : level(std::move(entered)),
        outer_layers(ft::getDynamicLayerStack()),
        forward_mode(true),
        active(JvpLayer::of(*level).active()),
        rules_were_included(rules::include_here()) {
    JvpLayer& layer = JvpLayer::of(*level);
    ++layer.visitors();
    ft::setDynamicLayerStack(layer.stack());
    ft::setDynamicLayerFrontBackKeysIncluded(true);
  }
  ~State() {
    ft::setDynamicLayerStack(outer_layers);
    ft::setDynamicLayerFrontBackKeysIncluded(!outer_layers.empty());
    rules::restore_here(rules_were_included);
    --JvpLayer::of(*level).visitors();
  }

  std::shared_ptr<ForwardADLevel> level;
  LayerStack outer_layers;
  c10::AutoFwGradMode forward_mode;
  ActiveLevels active;
  bool rules_were_included;
};

LevelScope::LevelScope(uint64_t level) : state_(std::make_unique<State>(ForwardADLevel::get_by_idx(level))) {}

LevelScope::~LevelScope() = default;

}  // namespace overdrive::forward_ad
