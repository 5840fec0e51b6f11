// Where the engine counts what it did: one block a thread, so that counting takes no lock and
// touches no line that another thread writes. The blocks outlive their threads' code: a thread
// that ends leaves its counts behind, and a late destructor may still count. stats() makes sums
// of them for people; nothing here decides anything.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace overdrive::engine {

enum class Count : int {
  kBackwards,
  kNodes,
  kFramesElided,
  kNested,
  kSlowValidations,
  kSlowSums,
  kFreshStacks,
  kThreads,
  kChecked,
  kCheckSkipped,
  kDecisionHits,
  kDecisionMisses,
  kPackedLater,
  kAheadHits,
  kAheadWaits,
  kAheadMisses,
  kAheadUnused,
  kAheadBytes,
  kHowMany,  // that is, of these
};

// Bytes of saved tensors that wait to be packed now; a negative number takes back. Not a count of what was
// done, so reset_counters() leaves it.
void note_waiting_bytes(int64_t more);
int64_t waiting_bytes();

// Adds n to this thread's counter. Safe at any time, also while the thread or the process ends.
void count(Count which, uint64_t n = 1);

// How often each type of own node ended in which way. Numbers, because only a higher folder knows the types and
// ways.
inline constexpr size_t kOwnTypes = 128;
inline constexpr size_t kOwnOutcomes = 8;
void count_own(size_t type, size_t outcome);

// Counts a call that was given to the previous engine. `reason` is a string literal.
void count_forwarded(const char* reason);

struct CounterTotals {
  std::array<uint64_t, static_cast<size_t>(Count::kHowMany)> counts{};
  std::map<std::string, uint64_t> forwarded;
  std::array<uint64_t, kOwnTypes * kOwnOutcomes> own{};

  uint64_t own_count(size_t type, size_t outcome) const { return own[type * kOwnOutcomes + outcome]; }
  uint64_t operator[](Count which) const { return counts[static_cast<size_t>(which)]; }
};

// Sums over every thread that lives or lived since the last reset_counters(). A thread that is
// counting meanwhile is included up to some point of its own.
CounterTotals counter_totals();
void reset_counters();

}  // namespace overdrive::engine
