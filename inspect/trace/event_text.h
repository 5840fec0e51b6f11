// Writes records as events of the Chrome and Perfetto JSON format, in as few bytes as the format allows. Used
// by the writer of one trace at a time. Knows no file: the text goes into a string.
#pragma once

#include "inspect/trace/record.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace overdrive::inspect {

// Numbers of consecutive operators, kept as their first and last.
class Sequences {
 public:
  void add(uint64_t number);
  bool has(uint64_t number) const;

 private:
  std::map<uint64_t, uint64_t> last_of_;  // by first
};

// Ticks of c10's approximate clock as nanoseconds since the trace began.
class TickScale {
 public:
  TickScale();
  // The length of a tick is measured at the first call, over at least two milliseconds.
  void settle();
  int64_t nanoseconds(uint64_t ticks) const {
    return static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - ticks_)) * per_tick_);
  }
  double per_tick() const { return per_tick_; }
  int64_t unix_nanoseconds() const { return unix_; }

 private:
  uint64_t ticks_;
  int64_t steady_;
  int64_t unix_;
  double per_tick_ = 0;
};

class EventText {
 public:
  explicit EventText(int64_t process) : process_(process) {}

  // `name` is JSON text already.
  void thread_name(std::string& out, int64_t thread, std::string_view name) const;
  void event(std::string& out, const TraceRecord& record, std::string_view name, int64_t thread,
             bool has_arrow) const;

  TickScale scale;

 private:
  const int64_t process_;
};

}  // namespace overdrive::inspect
