#include "replay/lanes/cores.h"

#include "engine/base/control_group.h"

#include <sched.h>

#include <algorithm>

namespace overdrive::replay {

int cores_given() {
  cpu_set_t allowed;
  const int processors = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, static_cast<int>(std::min<double>(processors, base::processor_quota())));
}

}  // namespace overdrive::replay
