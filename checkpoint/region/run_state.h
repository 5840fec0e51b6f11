// The modes that a region ran in: grad mode, dispatch keys, hooks on saved tensors, functorch layers, autocast,
// the default dtype. Taken before the first run, put back for later runs on any thread. A value, unchanged once
// taken.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/DefaultDtype.h>

#include <utility>
#include <vector>

namespace overdrive::checkpoint {

class RunState {
 public:
  // The modes of this thread now.
  RunState();

 private:
  friend class RunStateScope;
  using AutocastType = std::pair<at::DeviceType, at::ScalarType>;

  const at::ThreadLocalState threads_;
  std::vector<AutocastType> autocast_;  // of the device types with autocast on
  const bool autocast_cache_;
  const caffe2::TypeMeta default_dtype_;
};

// Puts the modes back for the length of a scope, and at its end those of the thread.
class RunStateScope {
 public:
  explicit RunStateScope(const RunState& state);
  ~RunStateScope();
  RunStateScope(const RunStateScope&) = delete;
  RunStateScope& operator=(const RunStateScope&) = delete;

 private:
  const at::ThreadLocalStateGuard threads_;
  std::vector<RunState::AutocastType> outer_autocast_;
  const bool outer_autocast_cache_;
  const caffe2::TypeMeta outer_default_dtype_;
};

// No graph for the length of a scope. Autocast keeps no weights meanwhile: they would have no history, and
// operators that need one would find them.
class WithoutGraph {
 public:
  WithoutGraph();
  ~WithoutGraph();
  WithoutGraph(const WithoutGraph&) = delete;
  WithoutGraph& operator=(const WithoutGraph&) = delete;

 private:
  const at::AutoGradMode no_grad_{false};
  const bool autocast_cache_;
};

// Has is_checkpointing() and is_recomputing() (phase.h) answer for the length of a scope.
class PhaseScope {
 public:
  enum class Phase { kCheckpointing, kRecomputing };

  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const bool checkpointing_;
  const bool recomputing_;
};

}  // namespace overdrive::checkpoint
