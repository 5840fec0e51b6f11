#include "replay/recording/backoff.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// A call that is recorded costs about so many eager ones, of which a replay saves a part. Where recordings have
// cost so many more than replays have brought, calls run eagerly for a while, each time longer.
constexpr int64_t kCostOfARecording = 18;
constexpr int64_t kMostDebt = 1500;
constexpr uint64_t kRest = 512;
constexpr uint64_t kMostRests = 8;
// Calls in turn with sizes that no call had before, after which calls run eagerly, too; and how many try again
// after such a rest.
constexpr uint64_t kMostNew = 512, kNewAgain = 64;

}  // namespace

bool Backoff::take_call() {
  if (left_ == 0) return false;
  --left_;
  return true;
}

void Backoff::begin(Refusal reason) {
  left_ = kRest << std::min(rests_++, kMostRests);
  reason_ = std::move(reason);
}

bool Backoff::note_new() {
  if (++new_in_turn_ <= kMostNew) return false;
  new_in_turn_ = kMostNew - kNewAgain;
  begin(
      "Sizes, types, strides or modes of the inputs have been new in very many calls in turn, and a program is "
      "for those that come again: pad batches to a few sizes.");
  return true;
}

void Backoff::weigh(const CaptureStats& stats, uint64_t useful, const Refusal& last_reason) {
  const auto wasted = static_cast<int64_t>(stats.recorded - useful);
  const int64_t debt = kCostOfARecording * wasted - static_cast<int64_t>(stats.replayed) - forgiven_;
  if (debt <= kMostDebt) return;
  forgiven_ += debt / 4;
  const std::string last =
      last_reason.empty() ? "other sizes, types, strides or modes in each call" : last_reason.text;
  begin(last_reason.with_text(c10::str(
      "Recordings are made so often, and fit so seldom, that nothing is gained. The last reason: ", last,
      last.ends_with('.') ? "" : ".")));
}

}  // namespace overdrive::replay
