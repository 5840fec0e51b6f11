// Shadow mode (OVERDRIVE_CHECK=n): every n-th backward runs on stock first, on a kept graph, and its gradients
// are compared with ours, bit for bit. Runs on the calling thread. A debugging aid: it costs a second backward
// and copies of the leaves' gradients. No other thread may use these gradients meanwhile, or draw random
// numbers: the generators of the devices are put back for the second run.
#pragma once

#include "engine/backward.h"

#include <functional>

namespace overdrive::engine {

// True for every n-th call in the process that is not inside another backward.
bool shadow_check_is_due(int every);

// Runs `call` on stock, puts the leaves' gradients back, runs it by `ours` and compares. A call
// that has hooks is run by `ours` only, because hooks must not run twice. The first difference
// is a c10::Error that names the leaf, the element and both values.
base::variable_list run_with_shadow_check(const BackwardCall& call,
                                          const std::function<base::variable_list()>& ours);

// Whether this thread is in the half that runs on stock, also as stock's thread of a device. A backward that a
// node of it runs keeps its graph and has the gradients of its leaves put back at the end, because ours will
// run it again. One that has hooks, or is too deep, ends the check: the call is then run by `ours` only.
bool inside_stock_half();
base::variable_list run_inside_stock_half(const BackwardCall& call);

}  // namespace overdrive::engine
