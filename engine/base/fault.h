// Mistakes that can be switched on in a test build of the engine, to show that the graph fuzzer
// would find them. In every other build OVERDRIVE_FAULT(...) is the constant false and this
// header is all there is of it. Any thread may read the switch; set it between backwards.
#pragma once

#ifdef OVERDRIVE_TEST_FAULTS

#include "engine/base/export.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

namespace overdrive::base {

enum class Fault : int {
  kNone,
  kSwapHooks,          // two hooks of one kind run in the other order
  kDropTieRule,        // equal sequence numbers are ordered by index
  kSkipTlsRestore,     // what a hook leaves in thread-local state stays for the next node
  kSumOtherOrder,      // old + new becomes new + old, or a later sum comes first
  kCaptureAfterHooks,  // grad() returns what the tensor's hooks made of the gradient
  kLoseUndefined,      // an undefined gradient becomes zeros
  kKeepGradient,       // a gradient lives on after its last use
  kReleaseTooEarly,    // a node's variables are released before its post-hooks
  kForgetCallback,     // the last final callback does not run
  kSkipValidation,     // outputs of a node are not checked
  kHowMany
};

inline constexpr std::array<std::string_view, static_cast<int>(Fault::kHowMany)> kFaultNames = {
    "none",
    "swap_hooks",
    "drop_tie_rule",
    "skip_tls_restore",
    "sum_other_order",
    "capture_after_hooks",
    "lose_undefined",
    "keep_gradient",
    "release_too_early",
    "forget_callback",
    "skip_validation"};

inline Fault fault_from_environment() {
  const char* name = std::getenv("OVERDRIVE_TEST_FAULT");
  for (int i = 0; name && i < static_cast<int>(Fault::kHowMany); ++i) {
    if (kFaultNames[i] == name) return static_cast<Fault>(i);
  }
  return Fault::kNone;
}

// One object a process, also when the header is seen by the library and by the test that links it.
OVERDRIVE_API inline std::atomic<Fault>& active_fault() {
  static std::atomic<Fault> active{fault_from_environment()};
  return active;
}

}  // namespace overdrive::base

#define OVERDRIVE_FAULT(which) \
  (::overdrive::base::active_fault().load(std::memory_order_relaxed) == ::overdrive::base::Fault::which)

#else

#define OVERDRIVE_FAULT(which) false

#endif
