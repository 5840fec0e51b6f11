// What the process has used so far that no clock shows: how often its threads gave up a processor, and how many
// threads there are. Read from the kernel by each call; any thread may ask.
#pragma once

#include <cstdint>

namespace overdrive::bench {

struct ProcessUsage {
  int64_t waits = 0;        // switches of a thread that had to wait for something
  int64_t preemptions = 0;  // switches of a thread that would have gone on: mostly other programs' doing
  int64_t threads = 0;      // now
};

ProcessUsage process_usage();

}  // namespace overdrive::bench
