#include "engine/base/control_group.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace overdrive::base {
namespace {

// The least that `limit_of` says of the folders of a process's groups. A group is limited by all that it lies
// in. A container sees its own as the outermost.
template <typename LimitOf>
auto least_of(const ControlGroups& groups, const LimitOf& limit_of) {
  auto least = limit_of(std::string());
  std::ifstream list(groups.of_process);
  for (std::string line; std::getline(list, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b"
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    std::string folder = line.substr(second + 1);
    for (; folder.size() > 1 && folder.front() == '/'; folder.erase(folder.rfind('/')))
      least = std::min(least, limit_of(folder));
  }
  return least;
}

// "100000 50000" or "max 100000": microseconds in each so many. In the older form two files, and -1.
double quota_of(const std::string& root, const std::string& folder) {
  double least = std::numeric_limits<double>::max(), period = 0;
  std::ifstream file(root + folder + "/cpu.max");
  std::string quota;
  if (file >> quota >> period && quota != "max" && period > 0)
    least = std::strtod(quota.c_str(), nullptr) / period;
  std::ifstream old_quota(root + "/cpu" + folder + "/cpu.cfs_quota_us"),
      old_period(root + "/cpu" + folder + "/cpu.cfs_period_us");
  double allowed = 0;
  if (old_quota >> allowed && old_period >> period && allowed > 0 && period > 0)
    least = std::min(least, allowed / period);
  return least;
}

// A number of bytes, or "max". In the older form a number near 2^63 where there is no limit.
uint64_t memory_of(const std::string& root, const std::string& folder) {
  uint64_t least = UINT64_MAX;
  for (const std::string& name :
       {root + folder + "/memory.max", root + "/memory" + folder + "/memory.limit_in_bytes"}) {
    std::ifstream file(name);
    uint64_t bytes = 0;
    if (file >> bytes) least = std::min(least, bytes);
  }
  return least;
}

}  // namespace

double processor_quota(const ControlGroups& groups) {
  return least_of(groups, [&](const std::string& folder) { return quota_of(groups.root, folder); });
}

uint64_t memory_limit(const ControlGroups& groups) {
  return least_of(groups, [&](const std::string& folder) { return memory_of(groups.root, folder); });
}

}  // namespace overdrive::base
