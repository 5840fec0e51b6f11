#include "forward_ad/levels/bare_level.h"

#include "forward_ad/layers/host_level.h"
#include "forward_ad/levels/jvp_layer.h"
#include "forward_ad/levels/level_registry.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

namespace {
constexpr uint64_t kNone = UINT64_MAX;

// The bare level of the process.
std::atomic<uint64_t> open_idx{kNone};

// True when nothing else can have tangents on level 0, so that a layer would add nothing.
bool suits_this_thread() {
  return active_levels().size() == 1 && ft::getDynamicLayerStack().empty() &&
         c10::AutogradState::get_tls_state().get_fw_grad_mode() && !c10::InferenceMode::is_enabled();
}

// A thread of a pool has no list of levels, but the opener's dispatch keys, and its layers. A bare level and a
// layer both include the rules' key; a layer knows the levels around it.
bool is_inside_by_copy(uint64_t idx) {
  if (!rules::are_included_here()) return false;
  for (const Layer& layer : ft::getDynamicLayerStack()) {
    auto level = layer.key() == ft::TransformType::Jvp ? level_of_life(life_of(layer)) : std::nullopt;
    if (auto open = level ? LevelRegistry::try_get_by_idx(*level) : nullptr) {
      const auto& around = JvpLayer::of(*open).active();
      return std::find(around.begin(), around.end(), idx) != around.end();
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<BareLevel> BareLevel::try_open(uint64_t idx) {
  if (!suits_this_thread() || !host_level::try_acquire_alone()) return nullptr;
  try {
    return std::unique_ptr<BareLevel>(new BareLevel(idx));
  } catch (...) {
    host_level::release();
    throw;
  }
}

BareLevel::BareLevel(uint64_t idx) : idx_(idx) { open_idx = idx; }

BareLevel::~BareLevel() = default;

BareLevel* BareLevel::of(const ForwardADLevel& level) { return dynamic_cast<BareLevel*>(level.layer()); }

std::optional<uint64_t> BareLevel::here() {
  uint64_t idx = open_idx;
  if (idx == kNone) return std::nullopt;
  bool inside = active_levels().empty() ? is_inside_by_copy(idx) : is_active_here(idx);
  return inside ? std::optional(idx) : std::nullopt;
}

void BareLevel::check_can_leave() const {
  TORCH_CHECK(forced_ || ft::getDynamicLayerStack().empty(), "Forward AD level ", idx_,
              " cannot be released: a layer that was pushed inside it is still on the layer stack.");
}

void BareLevel::leave() noexcept {
  drop_layers(0);
  rules_.reset();
  for (const auto& tangents : given_) tangents->clear();
  open_idx = kNone;
  host_level::release();
}

at::Tensor BareLevel::make_dual(const at::Tensor& primal, const at::Tensor& tangent) {
  auto tangents = std::make_shared<ForwardGrad>();
  given_.push_back(tangents);
  tangents->set_value(tangent, idx_);
  return with_plain_tangent(primal, tangents->value(idx_));
}

at::Tensor plain_tangent(const at::Tensor& tensor) {
  c10::AutoFwGradMode enabled(true);
  return tensor._fw_grad(0);
}

at::Tensor with_plain_tangent(const at::Tensor& primal, const at::Tensor& tangent) {
  BelowLayer below_all(0);
  c10::AutoFwGradMode enabled(true);
  return at::_make_dual(primal, tangent, 0);
}

void check_plain_tangent_is_ours(const at::Tensor& tensor, const char* what) {
  uint64_t idx = open_idx;
  if (idx == kNone || BareLevel::here() || !plain_tangent(tensor).defined()) return;
  TORCH_CHECK(false, what, ": the tensor belongs to level ", idx,
              ", the outermost level of a driver that another thread runs. Levels active on this thread: ",
              active_levels_text(), ".");
}

}  // namespace overdrive::forward_ad
