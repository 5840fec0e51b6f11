// A level that has no layer: its duals are plain tensors with a tangent on LibTorch's own
// level 0, which operators carry along without passing the dispatcher a second time. The
// drivers' outermost level is one where it can be (Note [Bare levels]). Owned by its
// ForwardADLevel; opened and left by one thread, asked by any. Leaves the tensors' checks
// to dual.cpp. Private.
#pragma once

#include "forward_ad/levels/forward_grad.h"
#include "forward_ad/levels/level.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace overdrive::forward_ad {

// Note [Bare levels]
// Level 0 knows no directions: two levels that both kept their tangents on plain tensors
// would mix them. So a bare level is opened only when nobody is on level 0, neither the
// program nor a level of any thread; all that are opened while it is there have layers.
// A layer keeps its tangents on wrappers, and what is below the wrappers is carried along
// as LibTorch does for a program that nests a layer in its own dual level: each direction
// has its own tensors.
//
// The tangents end when level 0 is left. If another thread's layer still needs level 0 by
// then, tangents of results that escaped from the driver stay until that one is gone.
// Nothing takes them for its own: a bare level is not opened before, unpack_dual() on a
// layer does not read them, and what the driver itself returns is freed of them.
//
// Rejected: clearing these tangents one by one. Level 0 has them in one set with those of
// the other thread's wrappers, and one taken for the wrong kind would be a derivative of
// zero.

class BareLevel final : public LevelLayer {
 public:
  // Null when a layer, another level, or somebody on level 0 is in the way.
  static std::unique_ptr<BareLevel> try_open(uint64_t idx);
  ~BareLevel() override;

  // Null when the level is not a bare one.
  static BareLevel* of(const ForwardADLevel& level);
  // The open one, if this thread is inside: its own, or by a copy of its opener's
  // thread-local state.
  static std::optional<uint64_t> here();

  void check_can_leave() const override;
  void leave() noexcept override;
  void force() noexcept override { forced_ = true; }

  at::Tensor make_dual(const at::Tensor& primal, const at::Tensor& tangent);

 private:
  explicit BareLevel(uint64_t idx);

  const uint64_t idx_;
  const bool key_was_included_;
  bool forced_ = false;
  // The tangents that the level was given, under the registry's control.
  std::vector<std::shared_ptr<ForwardGrad>> given_;
};

// The tangent of a plain tensor on level 0; undefined when it has none.
at::Tensor plain_tangent(const at::Tensor& tensor);

// A plain dual, without asking the registry: for what was a dual before.
at::Tensor with_plain_tangent(const at::Tensor& primal, const at::Tensor& tangent);

// Throws when a plain tensor has a tangent of a bare level that this thread is not inside.
void check_plain_tangent_is_ours(const at::Tensor& tensor, const char* what);

}  // namespace overdrive::forward_ad
