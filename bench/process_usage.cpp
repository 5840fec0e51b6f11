#include "bench/process_usage.h"

#include <sys/resource.h>

#include <fstream>

namespace overdrive::bench {

int64_t process_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

ProcessUsage process_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.waits = usage.ru_nvcsw,
          .preemptions = usage.ru_nivcsw,
          .threads = process_status("Threads"),
          .faults = usage.ru_minflt};
}

}  // namespace overdrive::bench
