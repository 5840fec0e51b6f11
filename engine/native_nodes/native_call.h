// One node that the engine runs in the place of the node's own apply(): what comes, what goes, and what a
// function may do with it. Made for one node of a run, on the run's thread. A function checks everything before
// it writes anything; then it runs, or it declines and nothing has changed. The caller has made sure of the
// surroundings: no grad mode, no hooks, no mode of the dispatcher, keys as a thread begins with.
#pragma once

#include "engine/base/counters.h"
#include "engine/base/torch_types.h"
#include "engine/node/node_call.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace overdrive::engine {

// How a call of a native node ended: it ran, or why it left the work to the node's apply().
enum class NativeOutcome : uint8_t {
  kRan,
  kOddGradient,  // undefined, not dense on the CPU, not contiguous, another type than float or double
  kOddSaved,     // changed, released, with a hook, or of another form than the gradient
  kOddShape,     // sizes that the function does not take, or a gradient of other sizes than the node's output
  kOddValue,     // a scalar or an option that the function does not take
  kLarge,        // the host's kernels use their threads
  kSeen,         // the result would be a view that the program gets
  kNaN,          // a product with a NaN in the gradient
  kHowMany
};

// In the counters a refusal follows the outcomes: NativeRefusal::kNone has no place.
inline constexpr size_t place_of(NativeOutcome outcome) { return static_cast<size_t>(outcome); }
inline constexpr size_t place_of(NativeRefusal refusal) {
  return place_of(NativeOutcome::kHowMany) + static_cast<size_t>(refusal) - 1;
}
inline constexpr size_t kNativeWays = place_of(NativeRefusal::kHowMany);
static_assert(kNativeWays <= base::kNativeOutcomes);
inline constexpr std::array<std::string_view, kNativeWays> kNativeOutcomeNames = {
    "ran",          "gradient", "saved",   "shape", "value", "large",   "seen",     "nan",   "hook",
    "create_graph", "inputs",   "devices", "mode",  "level", "anomaly", "profiler", "watch", "exact"};

struct NativeCall {
  base::Node& node;
  base::variable_list& gradients;  // as many as the node has inputs; used up when the function runs
  base::variable_list& results;    // one an edge, undefined at first
  bool views_are_seen;             // the program may get a result: a view must know what it is a view of

  bool wants(size_t edge) const { return edge < results.size() && node.next_edges()[edge].is_valid(); }
};

using NativeFunction = NativeOutcome (*)(NativeCall&);

}  // namespace overdrive::engine
