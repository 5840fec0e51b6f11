#include "replay/run/profitability.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace overdrive::replay {

namespace {

std::string text_of(double nanoseconds) {
  const char* const unit = nanoseconds < 1e6 ? "us" : "ms";
  char text[48];
  std::snprintf(text, sizeof text, "%.4g %s", nanoseconds / (nanoseconds < 1e6 ? 1e3 : 1e6), unit);
  return text;
}

}  // namespace

void Profitability::note(Way way, double nanoseconds) {
  if (!is_open()) return;
  if (way != way_) return interrupt();
  if (first_ < kFirstReplays) return void(++first_);
  if (++calls_ <= kSettle) return;
  double& best = way == Way::kReplay ? replay_ : eager_;
  best = std::min(best, nanoseconds);
  if (calls_ < kSettle + kMeasured) return;
  calls_ = 0;
  if (way == Way::kReplay) {
    way_ = Way::kEager;
  } else {
    end_round();
  }
}

void Profitability::interrupt() {
  calls_ = 0;
  way_ = Way::kReplay;
  replay_ = eager_ = kNone;
}

// Noise makes a call longer, and seldom the best of one way alone in nearly every round.
void Profitability::end_round() {
  const double ratio = replay_ / eager_;
  best_replay_ = std::min(best_replay_, replay_);
  best_eager_ = std::min(best_eager_, eager_);
  interrupt();
  ++rounds_;
  if (ratio <= kMost) ++good_;
  if (ratio >= kFarMore) ++bad_;
  if (ratio <= kFarLess || good_ >= kGoodRounds) {
    verdict_ = Verdict::kReplays;
  } else if (rounds_ == kRounds || (rounds_ == kBadRounds && bad_ == rounds_)) {
    verdict_ = best_replay_ <= kMost * best_eager_ ? Verdict::kReplays : Verdict::kEager;
  }
}

std::string Profitability::describe() const {
  if (!std::isfinite(best_replay_)) return "";
  return "a replay takes " + text_of(best_replay_) + " and an eager call " + text_of(best_eager_) +
         ", the best of " + std::to_string(rounds_ * kMeasured) + " each";
}

}  // namespace overdrive::replay
