// What the process has used so far that no clock shows: how often its threads gave up a processor, and how many
// threads there are. Read from the kernel by each call; any thread may ask.
#pragma once

#include <cstdint>
#include <string>

namespace overdrive::bench {

struct ProcessUsage {
  int64_t waits = 0;        // switches of a thread that had to wait for something
  int64_t preemptions = 0;  // switches of a thread that would have gone on: mostly other programs' doing
  int64_t threads = 0;      // now
  int64_t faults = 0;       // of pages, without reading from a disk
};

ProcessUsage process_usage();

// A number that the kernel's status of this process gives under `name` ("Threads", "VmRSS"); -1 without one.
int64_t process_status(const std::string& name);

}  // namespace overdrive::bench
