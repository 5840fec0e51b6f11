#include "checkpoint/region/run_state.h"

#include "checkpoint/region/phase.h"

#include <ATen/autocast_mode.h>

namespace overdrive::checkpoint {

namespace autocast = at::autocast;

namespace {
thread_local bool tls_checkpointing = false;
thread_local bool tls_recomputing = false;
}  // namespace

RunState::RunState()
    : autocast_cache_(autocast::is_autocast_cache_enabled()), default_dtype_(c10::get_default_dtype()) {
  for (at::DeviceType type : autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    if (autocast::is_autocast_enabled(type)) autocast_.emplace_back(type, autocast::get_autocast_dtype(type));
  }
}

// Whether autocast is on is a dispatch key, which the thread's state carries; the types are not.
RunStateScope::RunStateScope(const RunState& state)
    : threads_(state.threads_),
      outer_autocast_cache_(autocast::is_autocast_cache_enabled()),
      outer_default_dtype_(c10::get_default_dtype()) {
  outer_autocast_.reserve(state.autocast_.size());  // nothing below throws: the destructor would not run
  for (const auto& [type, dtype] : state.autocast_) {
    outer_autocast_.emplace_back(type, autocast::get_autocast_dtype(type));
    autocast::set_autocast_dtype(type, dtype);
  }
  // Autocast's cache belongs to the thread. Inside an autocast of the program the cache would outlive the
  // region, and with it a graph that is used up.
  const bool alone = autocast::increment_nesting() == 1;
  autocast::set_autocast_cache_enabled(state.autocast_cache_ && alone);
  if (state.default_dtype_ != outer_default_dtype_) c10::set_default_dtype(state.default_dtype_);
}

RunStateScope::~RunStateScope() {
  if (c10::get_default_dtype() != outer_default_dtype_) c10::set_default_dtype(outer_default_dtype_);
  if (autocast::decrement_nesting() == 0) autocast::clear_cache();
  autocast::set_autocast_cache_enabled(outer_autocast_cache_);
  for (const auto& [type, dtype] : outer_autocast_) autocast::set_autocast_dtype(type, dtype);
}

WithoutGraph::WithoutGraph() : autocast_cache_(autocast::is_autocast_cache_enabled()) {
  if (autocast_cache_) autocast::set_autocast_cache_enabled(false);
}

WithoutGraph::~WithoutGraph() {
  if (autocast_cache_) autocast::set_autocast_cache_enabled(true);
}

bool is_checkpointing() { return tls_checkpointing; }

bool is_recomputing() { return tls_recomputing; }

PhaseScope::PhaseScope(Phase phase) : checkpointing_(tls_checkpointing), recomputing_(tls_recomputing) {
  tls_checkpointing = phase == Phase::kCheckpointing;
  if (phase == Phase::kRecomputing) tls_recomputing = true;
}

PhaseScope::~PhaseScope() {
  tls_checkpointing = checkpointing_;
  tls_recomputing = recomputing_;
}

}  // namespace overdrive::checkpoint
