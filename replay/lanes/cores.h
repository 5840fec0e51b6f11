// How many processors the process may use at once: by its affinity and by its cgroup's quota. Any thread.
#pragma once

namespace overdrive::replay {

// At least 1. Looked up anew in each call, which reads files.
int cores_given();

}  // namespace overdrive::replay
