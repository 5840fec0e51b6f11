// Counts of what the library did, for stats(): one block a thread, so that counting takes no lock and touches
// no line that another thread writes. A folder brings its counters, as variables of static storage. A thread
// that ends leaves its counts behind, and a late destructor may still count. Any thread, any time. Nothing here
// decides anything.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace overdrive::base {

// One number with a name of stats(). Takes a place in the threads' blocks when something is first counted.
class Counter {
 public:
  enum class Kind {
    kDone,  // what was done since the last reset_counters()
    kNow,   // what there is now, whatever was reset; a count of a negative number takes back
  };
  constexpr explicit Counter(const char* name, Kind kind = Kind::kDone) : name_(name), kind_(kind) {}

  const char* name() const { return name_; }
  Kind kind() const { return kind_; }

 private:
  friend void count(Counter& which, int64_t n);

  const char* const name_;
  const Kind kind_;
  std::atomic<size_t> place_{0};  // 0: none yet
};

// Adds n to this thread's part of the counter. Safe also while the thread or the process ends.
void count(Counter& which, int64_t n = 1);

// The engine's own; stats.h says what each is.
namespace counts {
inline constinit Counter backwards{"backwards"};
inline constinit Counter nodes{"nodes"};
inline constinit Counter frames_elided{"frames_elided"};
inline constinit Counter nested{"nested"};
inline constinit Counter slow_validations{"slow_validations"};
inline constinit Counter slow_sums{"slow_sums"};
inline constinit Counter fresh_stacks{"fresh_stacks"};
inline constinit Counter threads{"threads"};
inline constinit Counter checked{"checked"};
inline constinit Counter check_skipped{"check_skipped"};
inline constinit Counter compiled_autograd_unknown{"compiled_autograd_unknown"};
}  // namespace counts

// How often each type of native node ended in which way. Numbers, because only a higher folder knows the types
// and ways.
inline constexpr size_t kNativeTypes = 128;
inline constexpr size_t kNativeOutcomes = 18;
void count_native(size_t type, size_t outcome);

// Counts a call that was given to the previous engine. `reason` is a string literal.
void count_forwarded(const char* reason);

struct CounterTotals {
  std::map<std::string_view, uint64_t> counts;
  std::map<std::string, uint64_t> forwarded;
  std::array<uint64_t, kNativeTypes * kNativeOutcomes> native{};

  uint64_t native_count(size_t type, size_t outcome) const { return native[type * kNativeOutcomes + outcome]; }
  // 0 of a counter that has counted nothing yet.
  uint64_t operator[](std::string_view name) const {
    const auto at = counts.find(name);
    return at == counts.end() ? 0 : at->second;
  }
};

// Sums over every thread that lives or lived. A thread that is counting meanwhile is included up to some point
// of its own.
CounterTotals counter_totals();
void reset_counters();

}  // namespace overdrive::base
