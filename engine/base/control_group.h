// The limits that Linux's control groups set to this process, read anew in each call. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace overdrive::base {

// Where the groups lie, and the list of those of this process. A test has files of its own.
struct ControlGroups {
  std::string root = "/sys/fs/cgroup";
  std::string of_process = "/proc/self/cgroup";
};

// Processors that the process may use at once by its quota, not always a whole number. Very large without one.
double processor_quota(const ControlGroups& groups = {});

// The bytes that the process and its neighbours in the group may use. UINT64_MAX without a limit.
uint64_t memory_limit(const ControlGroups& groups = {});

}  // namespace overdrive::base
