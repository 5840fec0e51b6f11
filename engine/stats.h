// Counters of the work since the last reset; a child of fork() begins at zero. Any thread may read them. They
// are sums over threads, exact once the backwards have returned.
#pragma once

#include "engine/base/export.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace overdrive::engine {

struct Stats {                    // A copy of the counters.
  uint64_t backwards = 0;         // calls that our engine ran itself, nested ones included
  uint64_t nodes = 0;             // nodes that it ran
  uint64_t frames_elided = 0;     // backwards that needed no host frame
  uint64_t nested = 0;            // backwards inside a node or hook of another
  uint64_t slow_validations = 0;  // gradients that the quick check did not settle
  uint64_t slow_sums = 0;         // sums left to the host's InputBuffer::add
  uint64_t fresh_stacks = 0;      // nested backwards that moved to a stack of their own
  uint64_t threads = 0;           // threads that the engine started
  uint64_t checked = 0;           // backwards that shadow mode compared with stock
  uint64_t check_skipped = 0;     // backwards that shadow mode could not compare (hooks)
  // Of hooks with a schedule: tensors packed when their last use was over; and tensors that a node asked
  // for when they were fetched, were being fetched, were not; fetched for nobody; bytes fetched ahead.
  uint64_t packed_later = 0;
  uint64_t ahead_hits = 0;
  uint64_t ahead_waits = 0;
  uint64_t ahead_misses = 0;
  uint64_t ahead_unused = 0;
  uint64_t ahead_bytes = 0;
  uint64_t waiting_bytes = 0;  // of saved tensors that are still to be packed: now, whatever was reset
  uint64_t keep_memory_bytes =
      0;  // that may stay at the top of a heap of glibc's, by keep_memory() or by itself: now
  // Backwards of which the engine could not know whether compiled autograd was on, and ran them.
  uint64_t compiled_autograd_unknown = 0;
  // Nodes by type that the engine ran itself, and that it left to their apply() although it has a function.
  std::map<std::string, uint64_t> own_nodes;
  std::map<std::string, uint64_t> declined_nodes;  // "type: reason"
  std::map<std::string, uint64_t> forwarded;       // calls given to the previous engine, by reason

  // Of the tensors that nodes asked for, the share that was there in time or on its way; 0 of none.
  double ahead_ratio() const {
    const auto early = static_cast<double>(ahead_hits + ahead_waits);
    return early == 0 ? 0 : early / (early + static_cast<double>(ahead_misses));
  }
};

OVERDRIVE_API Stats stats();  // Adds up the counters of all threads.
// The types of node that the engine has a function of its own for.
OVERDRIVE_API std::vector<std::string> own_node_types();
OVERDRIVE_API void reset_stats();        // Every sum begins at 0 again.
OVERDRIVE_API std::string stats_json();  // stats() as JSON.
// One sentence for people: "6,000 backwards on Overdrive, 0 on stock; 30,000 nodes, 21,000 of them run by
// Overdrive itself".
OVERDRIVE_API std::string stats_summary();

}  // namespace overdrive::engine
