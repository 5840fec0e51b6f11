#include "bench/process_usage.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace overdrive::bench {

namespace {

int64_t threads_now() {
  std::ifstream file("/proc/self/status");
  const std::string name = "Threads:";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size()));
  }
  return -1;
}

}  // namespace

ProcessUsage process_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.waits = usage.ru_nvcsw, .preemptions = usage.ru_nivcsw, .threads = threads_now()};
}

}  // namespace overdrive::bench
