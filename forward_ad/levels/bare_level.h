// A level without a layer. Its duals are plain tensors with a tangent on LibTorch's own level 0, which
// operators carry along without passing the dispatcher a second time. The outermost level of a driver is bare
// where that is possible (Note [Bare levels]). Owned by its ForwardADLevel; opened and left by one thread,
// asked by any. Leaves checks of tensors to dual.cpp. Private.
#pragma once

#include "forward_ad/levels/forward_grad.h"
#include "forward_ad/levels/level.h"
#include "forward_ad/rules/rules.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace overdrive::forward_ad {

// Note [Bare levels]
// Level 0 knows no directions: two levels with tangents on plain tensors would mix them. So a bare level is
// opened only when neither the program nor a level of any thread is on level 0, and levels opened while it is
// there have layers. A layer keeps its tangents on wrappers, and LibTorch carries the tensors below the
// wrappers along, as it does for a program that nests a layer in its own dual level. So each direction has its
// own tensors.
//
// The tangents end when level 0 is left. If the layer of another thread still needs level 0 then, tangents of
// results that escaped from the driver stay until that layer is gone. Nothing mistakes them for its own: no
// bare level is opened before, unpack_dual() on a layer does not read them, and a driver returns tensors
// without them.
//
// Rejected: clearing these tangents one by one. Level 0 has them in one set with those of the other thread's
// wrappers, and a mistake between the two would be a derivative of zero.

class BareLevel final : public LevelLayer {
 public:
  // Null when a layer, another level, or somebody on level 0 is in the way.
  static std::unique_ptr<BareLevel> try_open(uint64_t idx);
  ~BareLevel() override;

  // Null when the level is not a bare one.
  static BareLevel* of(const ForwardADLevel& level);
  // The open bare level, if this thread opened it or has a copy of its opener's thread-local state.
  static std::optional<uint64_t> here();

  void check_can_leave() const override;
  void leave() noexcept override;
  void force() noexcept override { forced_ = true; }

  at::Tensor make_dual(const at::Tensor& primal, const at::Tensor& tangent);

 private:
  explicit BareLevel(uint64_t idx);

  const uint64_t idx_;
  std::optional<rules::IncludedHere> rules_{std::in_place};  // until leave()
  bool forced_ = false;
  // The tangents given to the level, which the registry knows.
  std::vector<std::shared_ptr<ForwardGrad>> given_;
};

// The tangent of a plain tensor on level 0; undefined when it has none.
at::Tensor plain_tangent(const at::Tensor& tensor);

// A plain dual, unknown to the registry: for a tensor that was a dual before.
at::Tensor with_plain_tangent(const at::Tensor& primal, const at::Tensor& tangent);

// Throws when a plain tensor has a tangent of a bare level that this thread is not inside.
void check_plain_tangent_is_ours(const at::Tensor& tensor, const char* what);

}  // namespace overdrive::forward_ad
