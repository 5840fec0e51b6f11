// The layer of one forward AD level: pushed when the level opens, popped when it is released. Owned by its
// ForwardADLevel. The opening thread pushes and pops; a thread that enters the level gets a copy of the stack
// as it was then. Leaves checks of tensors to dual.cpp. Private: includes functorch.
#pragma once

#include "forward_ad/layers/layers.h"
#include "forward_ad/levels/level.h"
#include "forward_ad/rules/rules.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace overdrive::forward_ad {

class JvpLayer final : public LevelLayer {
 public:
  // `bare`: the bare level that this thread is inside, see bare_level.h.
  JvpLayer(uint64_t idx, std::optional<uint64_t> bare);
  ~JvpLayer() override;

  // The layer of an open level; an error when the level was opened without one.
  static JvpLayer& of(const ForwardADLevel& level);

  void check_can_leave() const override;
  void leave() noexcept override;
  void force() noexcept override { forced_ = true; }

  // Throws unless the layer is on this thread's stack; gives its position, from 1.
  size_t check_here() const;

  at::Tensor wrap(const at::Tensor& tensor) const;
  LayerLife life() const { return life_of(stack_.back()); }

  // The stack and the levels that were active when this one opened, itself included.
  const LayerStack& stack() const { return stack_; }
  const std::vector<uint64_t>& active() const { return active_; }

  // Threads that are inside the level by a LevelScope.
  std::atomic<int>& visitors() { return visitors_; }

 private:
  void enter(std::optional<uint64_t> bare);

  const uint64_t idx_;
  bool forward_mode_;
  std::optional<rules::IncludedHere> rules_;  // until leave()
  LayerStack stack_;
  std::vector<uint64_t> active_;
  std::atomic<int> visitors_{0};
  bool forced_ = false;
  // A pool's thread had layers but no list of active levels, see levels_here().
  bool adopted_ = false;
};

// The open level that a wrapper belongs to, if it is one of ours.
std::optional<uint64_t> level_of_life(LayerLife life);

}  // namespace overdrive::forward_ad
