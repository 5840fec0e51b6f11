#include "forward_ad/levels/dual.h"

#include "forward_ad/layers/host_level.h"
#include "forward_ad/levels/bare_level.h"
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
// The list of a pool's thread holds only the new level so far, so BareLevel::here() gets an empty list.
std::optional<uint64_t> bare_level_around() {
  if (active_levels().size() > 1) return std::nullopt;
  const ActiveLevels none({});
  return BareLevel::here();
}

uint64_t next_idx_outside_inference() {
  TORCH_CHECK(
      !c10::InferenceMode::is_enabled(),
      "A forward AD level cannot be opened in inference mode, where operators drop tangents. Leave it with "
      "`c10::InferenceMode normal(false)`, or use a driver, which does so.");
  return LevelRegistry::get_next_idx();
}

}  // namespace

DualLevel::DualLevel(Ground ground) : idx_(next_idx_outside_inference()) {
  try {
    auto level = LevelRegistry::get_by_idx(idx_);
    std::unique_ptr<LevelLayer> layer;
    if (ground == Ground::kBareIfPossible) layer = BareLevel::try_open(idx_);
    if (layer == nullptr) layer = std::make_unique<JvpLayer>(idx_, bare_level_around());
    level->attach(std::move(layer));
  } catch (...) {
    LevelRegistry::release_idx(idx_);
    throw;
  }
}

DualLevel::~DualLevel() {
  // Nothing may leave a destructor.
  try {
    while (is_active_here(idx_) && LevelRegistry::try_get_by_idx(idx_)) {
      uint64_t innermost = active_levels().back();
      if (auto* layer = LevelRegistry::get_by_idx(innermost)->layer()) layer->force();
      LevelRegistry::release_idx(innermost);
    }
  } catch (const std::exception&) {
  }
}

void DualLevel::close() {
  if (LevelRegistry::try_get_by_idx(idx_)) host_level::check();
  LevelRegistry::release_idx(idx_);
}

struct LevelScope::State {
  explicit State(std::shared_ptr<ForwardADLevel> entered)
      : level(std::move(entered)),
        outer_layers(ft::getDynamicLayerStack()),
        forward_mode(true),
        active(JvpLayer::of(*level).active()) {
    JvpLayer& layer = JvpLayer::of(*level);
    ft::setDynamicLayerStack(layer.stack());
    ++layer.visitors();
    ft::setDynamicLayerFrontBackKeysIncluded(true);
  }
  ~State() {
    ft::setDynamicLayerStack(outer_layers);
    ft::setDynamicLayerFrontBackKeysIncluded(!outer_layers.empty());
    --JvpLayer::of(*level).visitors();
  }

  std::shared_ptr<ForwardADLevel> level;
  LayerStack outer_layers;
  c10::AutoFwGradMode forward_mode;
  ActiveLevels active;
  rules::IncludedHere rules;
};

LevelScope::LevelScope(uint64_t level) : state_(std::make_unique<State>(LevelRegistry::get_by_idx(level))) {}

LevelScope::~LevelScope() = default;

}  // namespace overdrive::forward_ad
