// The steps of a chain that are kept, and the order in which the others run again. Pure functions of numbers,
// without tensors and without threads. Leaves the running to sequential.h.
#pragma once

#include "engine/base/export.h"

#include <cstdint>
#include <vector>

namespace overdrive::checkpoint {

// The chain cut into parts that run again as a whole. At most one part for each step.
struct Segments {
  int64_t count = 1;
};

// Every step runs again by itself, from the nearest of `snapshots` kept states, the first one included
// (Griewank and Walther's Revolve). Memory does not grow with the chain.
struct Revolve {
  int64_t snapshots = 1;
};

// The lengths of `count` even parts, the longer ones first: 9 steps in 5 parts are 2, 2, 2, 2, 1.
OVERDRIVE_API std::vector<int64_t> even_parts(int64_t steps, int64_t count);

// The number of steps from one kept state to the next, where `steps` steps are left and `snapshots` states may
// be kept, this one included: going back then runs as few steps again as possible. For steps >= 2, snapshots >=
// 2.
OVERDRIVE_API int64_t next_snapshot(int64_t steps, int64_t snapshots);

// The least number of steps that run again without being recorded, beside one recorded run of each step: r n -
// C(s + r, r - 1), with the smallest r for which C(s + r, s) >= n.
OVERDRIVE_API int64_t fewest_reruns(int64_t steps, int64_t snapshots);

}  // namespace overdrive::checkpoint
