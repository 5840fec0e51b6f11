#include "checkpoint/chain/schedule.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace overdrive::checkpoint {

namespace {

// C(s + r, s): so many steps can be gone back through with s snapshots when none runs more than r times without
// being recorded.
int64_t reach(int64_t snapshots, int64_t repeats) {
  if (repeats < 0) return 0;
  int64_t value = 1;
  for (int64_t i = 1; i <= repeats; ++i) value = value * (snapshots + i) / i;
  return value;
}

int64_t repeats_for(int64_t steps, int64_t snapshots) {
  int64_t repeats = 0;
  for (int64_t value = 1; value < steps; value = value * (snapshots + repeats) / repeats) ++repeats;
  return repeats;
}

}  // namespace

std::vector<int64_t> even_parts(int64_t steps, int64_t count) {
  TORCH_CHECK(steps >= 1, "A chain of ", steps, " steps cannot be cut into parts.");
  TORCH_CHECK(count >= 1 && count <= steps, "A chain of ", steps, " steps cannot be cut into ", count,
              " parts; from 1 to ", steps, " is possible.");
  std::vector<int64_t> parts(static_cast<size_t>(count), steps / count);
  for (int64_t i = 0; i < steps % count; ++i) ++parts[static_cast<size_t>(i)];
  return parts;
}

// Behind the next snapshot there is one snapshot less, and before it one repetition less. The chain can be
// cut anywhere where both halves stay within their reach; this is the first such place.
int64_t next_snapshot(int64_t steps, int64_t snapshots) {
  TORCH_CHECK(
      steps >= 2 && snapshots >= 2, "next_snapshot(", steps, ", ", snapshots,
      "): there is a next snapshot only where 2 steps and 2 snapshots are left, or more. One step runs from "
      "its own state; one snapshot is the first state itself.");
  const int64_t repeats = repeats_for(steps, snapshots);
  return std::max({int64_t{1}, reach(snapshots, repeats - 2), steps - reach(snapshots - 1, repeats)});
}

int64_t fewest_reruns(int64_t steps, int64_t snapshots) {
  TORCH_CHECK(steps >= 1 && snapshots >= 1, "There is no schedule for ", steps, " steps with ", snapshots,
              " snapshots; both must be positive.");
  if (snapshots == 1) return steps * (steps - 1) / 2;
  const int64_t repeats = repeats_for(steps, snapshots);
  return repeats * steps - reach(snapshots + 1, repeats - 1);
}

}  // namespace overdrive::checkpoint
