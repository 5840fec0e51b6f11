#include "replay/lanes/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace overdrive::replay {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::max();

// "100000 50000" or "max 100000": microseconds in each so many.
double quota_of_group(const std::string& folder) {
  std::ifstream file("/sys/fs/cgroup" + folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return kNoLimit;
  return std::strtod(quota.c_str(), nullptr) / period;
}

// The same in the older form of groups.
double quota_of_old_group(const std::string& folder) {
  std::ifstream quota_file("/sys/fs/cgroup/cpu" + folder + "/cpu.cfs_quota_us"),
      period_file("/sys/fs/cgroup/cpu" + folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) return kNoLimit;
  return quota / period;
}

// A group is limited by all that it lies in. A container sees its own as the outermost.
double quota() {
  double least = std::min(quota_of_group(""), quota_of_old_group(""));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b"
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    std::string folder = line.substr(second + 1);
    for (; folder.size() > 1 && folder.front() == '/'; folder.erase(folder.rfind('/')))
      least = std::min({least, quota_of_group(folder), quota_of_old_group(folder)});
  }
  return least;
}

}  // namespace

int cores_given() {
  cpu_set_t allowed;
  const int processors = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, static_cast<int>(std::min<double>(processors, quota())));
}

}  // namespace overdrive::replay
