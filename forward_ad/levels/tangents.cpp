#include "forward_ad/levels/tangents.h"

#include "forward_ad/levels/bare_level.h"
#include "forward_ad/levels/dual.h"
#include "forward_ad/levels/jvp_layer.h"
#include "forward_ad/levels/level_registry.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

// A plain tensor, or a value on a layer, with a tangent if the layer is that of a level and there is one.
struct CapturedTangents::Piece {
  size_t part = 0;
  std::optional<Layer> layer;
  std::optional<uint64_t> level;
  std::unique_ptr<Piece> value;
  std::unique_ptr<Piece> tangent;
};

namespace {
std::optional<Layer> layer_of(LayerLife life, std::optional<uint64_t> level) {
  if (!level) return own_grad_layer(life);
  auto open_level = LevelRegistry::try_get_by_idx(*level);
  if (!open_level || BareLevel::of(*open_level) != nullptr) return std::nullopt;
  return JvpLayer::of(*open_level).stack().back();
}

}  // namespace

CapturedTangents::CapturedTangents() = default;
CapturedTangents::CapturedTangents(CapturedTangents&&) noexcept = default;
CapturedTangents& CapturedTangents::operator=(CapturedTangents&&) noexcept = default;
CapturedTangents::~CapturedTangents() = default;

CapturedTangents CapturedTangents::capture(const at::Tensor& tensor) {
  CapturedTangents captured;
  captured.whole_ = captured.take_apart(tensor);
  return captured;
}

std::unique_ptr<CapturedTangents::Piece> CapturedTangents::take_apart(at::Tensor tensor) {
  auto piece = std::make_unique<Piece>();
  auto* wrapper = tensor.defined() ? living_wrapper(tensor) : nullptr;
  LayerLife life = wrapper != nullptr ? life_of(*wrapper) : nullptr;
  piece->level = wrapper != nullptr ? level_of_life(life) : std::nullopt;
  piece->layer = wrapper != nullptr ? layer_of(life, piece->level) : std::nullopt;
  if (!piece->layer) {  // plain, or of a layer that is not ours: kept whole
    piece->part = parts_.size();
    parts_.push_back(std::move(tensor));
    if (wrapper == nullptr && BareLevel::here()) take_bare_tangent(*piece);
    return piece;
  }
  at::Tensor tangent;
  {
    c10::AutoFwGradMode enabled(true);
    tangent = unwrap_from(tensor._fw_grad(0), life);
  }
  piece->value = take_apart(wrapper->value());
  if (tangent.defined()) piece->tangent = take_apart(std::move(tangent));
  return piece;
}

// A plain tensor may have a tangent, too; its value then is a part without one.
void CapturedTangents::take_bare_tangent(Piece& piece) {
  at::Tensor& part = parts_[piece.part];
  at::Tensor tangent = part.defined() ? plain_tangent(part) : at::Tensor();
  if (!tangent.defined()) return;
  {
    BelowLayer below_all(0);
    c10::AutoGradMode recorded(true);  // its history is that of what is around the level
    part = part._fw_primal(0);
  }
  piece.level = BareLevel::here();
  piece.tangent = take_apart(std::move(tangent));
}

std::vector<uint64_t> CapturedTangents::levels() const {
  std::vector<uint64_t> levels;
  std::vector<const Piece*> open{whole_.get()};
  while (!open.empty()) {
    const Piece* piece = open.back();
    open.pop_back();
    if (piece == nullptr) continue;
    if (piece->tangent) levels.push_back(*piece->level);
    open.push_back(piece->value.get());
    open.push_back(piece->tangent.get());
  }
  // Indices grow as levels open, so order of index is order of nesting.
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

at::Tensor CapturedTangents::restore() const { return whole_ ? put_together(*whole_) : at::Tensor(); }

at::Tensor CapturedTangents::put_together(const Piece& piece) const {
  if (!piece.layer) {
    const at::Tensor& whole = parts_[piece.part];
    if (!piece.tangent || !LevelRegistry::try_get_by_idx(*piece.level)) return whole;
    c10::AutoGradMode recorded(true);
    return with_plain_tangent(whole, put_together(*piece.tangent));
  }
  at::Tensor value = put_together(*piece.value);
  if (!piece.layer->interpreter().is_alive()) return value;
  if (piece.tangent) return make_dual(value, put_together(*piece.tangent), *piece.level);
  return ft::makeTensorWrapper(value, piece.layer->interpreter());
}

}  // namespace overdrive::forward_ad
