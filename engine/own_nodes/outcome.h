// How a call of an own node ended: it ran, or why it left the work to the node's apply(). Plain values.
#pragma once

#include "engine/base/counters.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace overdrive::engine {

enum class OwnOutcome : uint8_t {
  kRan,
  kOddGradient,  // undefined, not dense on the CPU, not contiguous, another type than float or double
  kOddSaved,     // changed, released, with a hook, or of another form than the gradient
  kOddShape,     // sizes that the function does not take, or a gradient of other sizes than the node's output
  kOddValue,     // a scalar or an option that the function does not take
  kLarge,        // the host's kernels use their threads
  kSeen,         // the result would be a view that the program gets
  kHowMany
};

inline constexpr size_t kOwnWays = static_cast<size_t>(OwnOutcome::kHowMany);
static_assert(kOwnWays <= kOwnOutcomes);
inline constexpr std::array<std::string_view, kOwnWays> kOwnOutcomeNames = {
    "ran", "gradient", "saved", "shape", "value", "large", "seen"};

}  // namespace overdrive::engine
