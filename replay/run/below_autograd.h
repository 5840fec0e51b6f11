// What a thread needs around the steps of a replay. A scope of one thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

namespace overdrive::replay {

// Copies of what a step needs and nothing of autograd; grad mode is the recorded operator's.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below;
  at::AutoGradMode grad_mode{at::GradMode::is_enabled()};
};

}  // namespace overdrive::replay
