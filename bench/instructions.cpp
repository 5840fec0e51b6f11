#include "bench/instructions.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace overdrive::bench {

InstructionCounter::InstructionCounter() {
  perf_event_attr what{};
  what.type = PERF_TYPE_HARDWARE;
  what.size = sizeof(what);
  what.config = PERF_COUNT_HW_INSTRUCTIONS;
  what.exclude_kernel = 1;
  what.exclude_hv = 1;
  constexpr int kAnyCpu = -1;
  constexpr int kNoGroup = -1;
  file_ =
      static_cast<int>(syscall(SYS_perf_event_open, &what, /*pid=*/0, kAnyCpu, kNoGroup, PERF_FLAG_FD_CLOEXEC));
}

InstructionCounter::~InstructionCounter() {
  if (file_ >= 0) close(file_);
}

std::optional<uint64_t> InstructionCounter::read() const {
  uint64_t count = 0;
  if (file_ < 0 || ::read(file_, &count, sizeof(count)) != sizeof(count)) return std::nullopt;
  return count;
}

}  // namespace overdrive::bench
