#include "checkpoint/region/phase.h"

namespace overdrive::checkpoint {

namespace {
thread_local bool tls_checkpointing = false;
thread_local bool tls_recomputing = false;
}  // namespace

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
