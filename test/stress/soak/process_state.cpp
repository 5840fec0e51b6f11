#include "bench/process_usage.h"
#include "test/stress/soak/program.h"
#include "test/stress/soak/soak_internal.h"

#include <malloc.h>

#include <filesystem>

namespace overdrive::soak {

namespace {

int64_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

}  // namespace

ProcessState process_state() {
  malloc_trim(0);  // what malloc keeps for later is not a leak
  return {.resident_kib = bench::process_status("VmRSS"),
          .threads = bench::process_status("Threads"),
          .files = open_files(),
          .live_graphs = live_graphs()};
}

std::vector<std::string> growth(const ProcessState& before, const ProcessState& now) {
  std::vector<std::string> found;
  auto check = [&](const char* what, int64_t was, int64_t is, int64_t allowed) {
    if (is > was + allowed) {
      found.push_back(std::string(what) + " grew from " + std::to_string(was) + " to " + std::to_string(is));
    }
  };
  // The allocator's own arenas come and go with threads; a leak of one tensor a program is far above this.
  check("resident memory (KiB)", before.resident_kib, now.resident_kib, 16 * 1024 + before.resident_kib / 20);
  check("threads", before.threads, now.threads, 0);
  check("open files", before.files, now.files, 0);
  check("live graphs", 0, now.live_graphs, 0);
  return found;
}

}  // namespace overdrive::soak
