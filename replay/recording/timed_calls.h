// The calls of a recording that are timed until it is known whether replays are worth it. Owned by a Recording,
// and called by the thread that calls it. A whole step's time is that of its call. A part's backward runs
// later, in the middle of a program, so there the time from one call to the next counts, once a backward has
// come in between.
#pragma once

#include "replay/capture_options.h"
#include "replay/run/profitability.h"

#include <chrono>
#include <optional>
#include <string>

namespace overdrive::replay {

class TimedCalls {
 public:
  // Reads OVERDRIVE_CAPTURE_ALWAYS where the options say nothing; throws at a bad value.
  explicit TimedCalls(const CaptureOptions& options);
  ~TimedCalls() { end_turns(); }
  TimedCalls(const TimedCalls&) = delete;
  TimedCalls& operator=(const TimedCalls&) = delete;

  bool is_open() const { return profitability_.is_open(); }
  // Around each call while it is open. `backwards`: of a part whose results have a graph, how many have come.
  void begin_call(std::optional<uint64_t> backwards);
  // Whether a call that could be replayed shall be eager.
  bool wants_eager() const { return is_open() && way_ == Profitability::Way::kEager; }
  // A call beside those, which has no recording yet.
  void skip_call() { calls_ = 0; }
  // The same of the next call, as far as it is known.
  bool next_is_eager() const {
    return is_open() && (is_part_ ? way_ : profitability_.next()) == Profitability::Way::kEager;
  }
  // How many calls were replayed, and were eager, in it.
  void end_call(uint64_t replayed, uint64_t eager);

  // Why calls are eager from now on, or empty.
  std::string refusal() const;
  std::string describe() const { return profitability_.describe(); }

 private:
  using Clock = std::chrono::steady_clock;
  void begin_turn(Clock::time_point now, uint64_t backwards);
  // Parts are weighed one after the other: a time from call to call has the times of all others in it.
  bool take_turns();
  void end_turns();

  Profitability profitability_;
  // Of the call, or of the part's turn, that is under way.
  Profitability::Way way_ = Profitability::Way::kReplay;
  Clock::time_point start_;
  bool is_part_ = false;
  uint64_t backwards_ = 0;
  // Calls of the turn, and those that went its way to their end.
  uint64_t calls_ = 0, went_ = 0;
};

}  // namespace overdrive::replay
