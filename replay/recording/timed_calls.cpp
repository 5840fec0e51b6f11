#include "replay/recording/timed_calls.h"

#include "engine/base/environment_value.h"

#include <atomic>

namespace overdrive::replay {

namespace {

// The part that is weighed now, and how often others have asked since. One that is called no more lets go.
std::atomic<const TimedCalls*> timed_part{nullptr};
std::atomic<uint64_t> asked_in_vain{0};
constexpr uint64_t kMostAsked = 4096;

bool is_always(const CaptureOptions& options) {
  return base::value_from_environment("OVERDRIVE_CAPTURE_ALWAYS").value_or(0) == 1 || options.always;
}

}  // namespace

TimedCalls::TimedCalls(const CaptureOptions& options) : profitability_(is_always(options)) {}

bool TimedCalls::take_turns() {
  const TimedCalls* holder = nullptr;
  if (timed_part.compare_exchange_strong(holder, this) || holder == this) {
    if (holder == this) return true;
  } else if (asked_in_vain.fetch_add(1) < kMostAsked || !timed_part.compare_exchange_strong(holder, this)) {
    profitability_.interrupt();
    return false;
  }
  asked_in_vain = 0;
  calls_ = 0;
  return true;
}

void TimedCalls::end_turns() {
  const TimedCalls* holder = this;
  timed_part.compare_exchange_strong(holder, nullptr);
}

void TimedCalls::begin_turn(Clock::time_point now, uint64_t backwards) {
  start_ = now;
  backwards_ = backwards;
  calls_ = went_ = 0;
  way_ = profitability_.next();
}

void TimedCalls::begin_call(std::optional<uint64_t> backwards) {
  if (!is_open()) return;
  is_part_ = backwards.has_value();
  if (is_part_ && !take_turns()) {
    way_ = Profitability::Way::kReplay;
    return;
  }
  const Clock::time_point now = Clock::now();
  if (!is_part_ || calls_ == 0) {
    begin_turn(now, backwards.value_or(0));
  } else if (*backwards != backwards_) {
    if (calls_ == went_) {
      profitability_.note(way_, std::chrono::duration<double, std::nano>(now - start_).count());
    } else {
      profitability_.interrupt();
    }
    begin_turn(now, *backwards);
  }
  ++calls_;
}

void TimedCalls::end_call(uint64_t replayed, uint64_t eager) {
  const bool went =
      way_ == Profitability::Way::kReplay ? replayed == 1 && eager == 0 : replayed == 0 && eager == 1;
  if (is_part_) {
    if (went) ++went_;
  } else if (went) {
    profitability_.note(way_, std::chrono::duration<double, std::nano>(Clock::now() - start_).count());
  } else {
    profitability_.interrupt();
  }
  if (!is_open()) end_turns();
}

std::string TimedCalls::refusal() const {
  if (profitability_.verdict() != Profitability::Verdict::kEager) return "";
  return "Replays are not faster here: " + profitability_.describe() +
         ". Calls run eagerly. CaptureOptions::always (Python: always=True) or OVERDRIVE_CAPTURE_ALWAYS=1 "
         "replays "
         "them nevertheless.";
}

}  // namespace overdrive::replay
