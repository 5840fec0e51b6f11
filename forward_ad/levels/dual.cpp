#include "forward_ad/levels/dual.h"

#include "forward_ad/layers/dual_layout.h"
#include "forward_ad/layers/host_level.h"
#include "forward_ad/levels/bare_level.h"
#include "forward_ad/levels/dual_meta.h"
#include "forward_ad/levels/jvp_layer.h"
#include "forward_ad/levels/level_registry.h"

#include <ATen/ATen.h>

#include <string>

namespace overdrive::forward_ad {

namespace ft = at::functorch;

namespace {
void check_pair(const at::Tensor& primal, const at::Tensor& tangent, uint64_t level) {
  TORCH_CHECK(primal.defined() && tangent.defined(), "make_dual on level ", level, ": the ",
              primal.defined() ? "tangent" : "primal", " is an undefined tensor.");
  TORCH_CHECK(primal.is_floating_point() || primal.is_complex(), "make_dual on level ", level,
              ": the primal has dtype ", primal.dtype(),
              "; only floating point and complex tensors can be dual.");
  TORCH_CHECK(primal.sizes() == tangent.sizes(), "make_dual on level ", level, ": the primal has shape ",
              primal.sizes(), ", the tangent ", tangent.sizes(), ".");
  TORCH_CHECK(primal.dtype() == tangent.dtype(), "make_dual on level ", level, ": the primal has dtype ",
              primal.dtype(), ", the tangent ", tangent.dtype(), ".");
  TORCH_CHECK(primal.device() == tangent.device(), "make_dual on level ", level, ": the primal is on ",
              primal.device(), ", the tangent on ", tangent.device(), ".");
  TORCH_CHECK(primal.layout() == tangent.layout(), "make_dual on level ", level, ": the primal has layout ",
              primal.layout(), ", the tangent ", tangent.layout(), ".");
}

// The place of a level on this thread's stack: on a layer, or below all layers.
struct Place {
  uint64_t level;
  LayerLife life = nullptr;  // null: a bare level
  size_t position = 0;       // of the layer, from 1; 0: a bare level

  bool is_bare() const { return life == nullptr; }
  size_t layers_below() const { return is_bare() ? 0 : position - 1; }
};

std::string owner_of(LayerLife life) {
  auto level = level_of_life(life);
  return level ? "level " + std::to_string(*level) : "a layer that is not Overdrive's, or one of reverse mode";
}

// The value of a tensor on the layers below the level's. Wrappers without a derivative are looked through,
// because every tensor made inside a level has one.
at::Tensor below(at::Tensor tensor, const Place& place, const char* what) {
  const uint64_t level = place.level;
  for (;;) {
    auto* batched = ft::maybeGetBatchedImpl(tensor);
    TORCH_CHECK(batched == nullptr || static_cast<size_t>(batched->level()) < place.position,
                "make_dual on level ", level, ": the ", what,
                " is batched by a vmap that was opened inside this level.");
    auto* wrapper = living_wrapper(tensor);
    if (wrapper == nullptr) {
      check_plain_tangent_is_ours(tensor, "make_dual");
      TORCH_CHECK(!place.is_bare() || !plain_tangent(tensor).defined(), "make_dual on level ", level, ": the ",
                  what, " carries a tangent at this level already.");
      return tensor;
    }
    LayerLife life = life_of(*wrapper);
    size_t wrappers_position = position_here(life);
    if (life != place.life && wrappers_position > 0 && wrappers_position < place.position) return tensor;
    if (plain_tangent(tensor).defined() || tensor.requires_grad()) {
      TORCH_CHECK(life != place.life, "make_dual on level ", level, ": the ", what,
                  " carries a tangent at this level already.");
      TORCH_CHECK(wrappers_position > 0, "make_dual on level ", level, ": the ", what, " belongs to ",
                  owner_of(life),
                  ", which this thread has not entered. Put `LevelScope here(level)` around the use.");
      TORCH_CHECK(false, "make_dual on level ", level, ": the ", what, " belongs to ", owner_of(life),
                  ", which was opened inside this level. Make duals of outer levels first.");
    }
    tensor = at::Tensor(wrapper->value());
  }
}

// The tensor on each layer below the level's, so that an in-place operator may bring it a tangent there;
// LibTorch refuses to write into tensors from outside of a layer.
at::Tensor on_all_layers(at::Tensor tensor, size_t position) {
  const LayerStack& stack = ft::getDynamicLayerStack();
  if (position == 1) return tensor;
  auto* wrapper = ft::maybeGetTensorWrapper(tensor);
  auto* batched = ft::maybeGetBatchedImpl(tensor);
  size_t reached = wrapper != nullptr ? position_here(life_of(*wrapper))
                                      : (batched != nullptr ? static_cast<size_t>(batched->level()) : 0);
  for (; reached + 1 < position; ++reached) {
    if (stack[reached].key() == ft::TransformType::Vmap) continue;
    tensor = ft::makeTensorWrapper(tensor, stack[reached].interpreter());
  }
  return tensor;
}

// A formula may give a tangent without memory that stands for zeros; callers get memory, made below the level,
// so that it does not belong to it.
at::Tensor with_memory(const at::Tensor& tangent, const Place& place) {
  if (!tangent.defined() || !tangent._is_zerotensor()) return tangent;
  BelowLayer below_level(place.layers_below());
  return at::zeros(tangent.sizes(), tangent.options());
}

// The parts of a plain tensor, without the tangents of layers.
DualParts unpack_plain(const at::Tensor& tensor, const Place& place) {
  if (!place.is_bare()) {
    check_plain_tangent_is_ours(tensor, "unpack_dual");
    return {tensor, {}};
  }
  BelowLayer below_all(0);
  at::Tensor tangent = plain_tangent(tensor);
  return {tangent.defined() ? tensor._fw_primal(0) : tensor, with_memory(tangent, place)};
}

DualParts unpack(const at::Tensor& tensor, const Place& place);

// The tensor depends on layers above the level's: its parts do too.
DualParts unpack_inside(const at::Tensor& tensor, ft::TensorWrapper& wrapper, size_t position,
                        const Place& place) {
  const Layer& inner = ft::getDynamicLayerStack()[position - 1];
  TORCH_CHECK(inner.key() == ft::TransformType::Jvp || !tensor.requires_grad(), "unpack_dual on level ",
              place.level,
              ": the tensor is being differentiated in reverse mode inside this level. Unpack it outside.");
  auto inner_level = level_of_life(life_of(wrapper));
  at::Tensor tangent = unwrap_from(plain_tangent(tensor), life_of(wrapper));
  DualParts value = unpack(wrapper.value(), place);
  if (!tangent.defined()) return value;
  DualParts slope = unpack(tangent, place);
  TORCH_CHECK(inner_level.has_value(), "unpack_dual on level ", place.level,
              ": the tensor carries a tangent of a layer that is not Overdrive's.");
  DualParts parts{make_dual(value.primal, slope.primal, *inner_level), value.tangent};
  if (slope.tangent.defined()) {
    if (!value.tangent.defined()) {
      BelowLayer below_level(place.layers_below());
      value.tangent = at::zeros_like(slope.tangent);
    }
    parts.tangent = make_dual(value.tangent, slope.tangent, *inner_level);
  }
  return parts;
}

DualParts unpack(const at::Tensor& tensor, const Place& place) {
  at::Tensor looked_through = tensor;
  if (auto* batched = ft::maybeGetBatchedImpl(looked_through);
      batched != nullptr && static_cast<size_t>(batched->level()) > place.position) {
    DualParts parts = unpack(batched->value(), place);
    auto rebatch = [&](at::Tensor& part) {
      if (part.defined()) part = ft::makeBatched(part, batched->bdim(), batched->level());
    };
    rebatch(parts.primal);
    rebatch(parts.tangent);
    return parts;
  }
  auto* wrapper = living_wrapper(looked_through);
  if (wrapper == nullptr) return unpack_plain(looked_through, place);
  LayerLife life = life_of(*wrapper);
  if (life == place.life) {
    return {wrapper->value(), with_memory(unwrap_from(plain_tangent(looked_through), life), place)};
  }
  size_t position = position_here(life);
  if (position == 0 && !plain_tangent(looked_through).defined()) return unpack(wrapper->value(), place);
  TORCH_CHECK(position > 0, "unpack_dual on level ", place.level, ": the tensor belongs to ", owner_of(life),
              ", which this thread has not entered. Put `LevelScope here(level)` around the use.");
  if (position < place.position) return {looked_through, {}};
  return unpack_inside(looked_through, *wrapper, position, place);
}

// Throws where the level has a layer and this thread is not inside.
Place place_of(const ForwardADLevel& level, uint64_t idx) {
  if (BareLevel::of(level) != nullptr) return {.level = idx};
  const JvpLayer& layer = JvpLayer::of(level);
  return {idx, layer.life(), layer.check_here()};
}

at::Tensor primal_for(const at::Tensor& value, const at::Tensor& slope, const Place& place) {
  BelowLayer below_level(place.layers_below());
  return primal_that_takes(value, slope);
}

at::Tensor make_bare_dual(const at::Tensor& primal, const at::Tensor& tangent, BareLevel& bare,
                          const Place& place) {
  TORCH_CHECK(BareLevel::here() == place.level, "Forward AD level ", place.level,
              " is open, but this thread has not entered it. Levels active on this thread: ",
              active_levels_text(), ".");
  at::Tensor value = below(primal, place, "primal"), slope = below(tangent, place, "tangent");
  return bare.make_dual(primal_for(value, slope, place), slope);
}

}  // namespace

at::Tensor make_dual(const at::Tensor& primal, const at::Tensor& tangent, uint64_t level) {
  auto open_level = LevelRegistry::get_by_idx(level);
  const Place place = place_of(*open_level, level);
  host_level::check();
  check_pair(primal, tangent, level);
  if (auto* bare = BareLevel::of(*open_level)) return make_bare_dual(primal, tangent, *bare, place);
  const JvpLayer& layer = JvpLayer::of(*open_level);
  at::Tensor value = below(primal, place, "primal"), slope = below(tangent, place, "tangent");
  value = on_all_layers(primal_for(value, slope, place), place.position);
  slope = on_all_layers(slope, place.position);
  BelowLayer without_inner(place.position);
  at::Tensor dual = layer.wrap(value);
  slope = with_layout_of(dual, layer.wrap(slope));
  auto tangents = std::make_shared<ForwardGrad>();
  dual.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<DualMeta>(level, tangents));
  tangents->set_value(slope, level);
  return dual;
}

DualParts unpack_dual(const at::Tensor& tensor, uint64_t level) {
  auto open_level = LevelRegistry::get_by_idx(level);
  const Place place = place_of(*open_level, level);
  host_level::check();
  TORCH_CHECK(tensor.defined(), "unpack_dual on level ", level, ": the tensor is undefined.");
  return unpack(tensor, place);
}

}  // namespace overdrive::forward_ad
