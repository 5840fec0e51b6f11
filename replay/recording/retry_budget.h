// How often recordings and replays have failed, and after how many times calls are eager for good. A value;
// owned by a Recording. Counts, and leaves the sentences to the phases.
#pragma once

#include <cstdint>

namespace overdrive::replay {

class RetryBudget {
 public:
  // Each notes one failure more. True: that was the last one.
  // A recording differs from the one before.
  bool differs() { return ++differences_ >= kMostDifferences; }
  // It uses a gradient that another recording's calls leave, and that is another tensor each time until these
  // are replayed.
  bool waits_for_others() { return ++waits_ >= kMostWaits; }
  // What the recording needs from outside has changed.
  bool is_outdated(uint64_t replays) { return ++outdated_ >= kMostOutdated && replays < 2 * outdated_; }
  // Of a part: what its last recorded call made lives still, and the recording proves nothing yet.
  bool is_held() { return ++held_ > kMostHeld; }
  // A replay was taken back.
  bool is_undone() { return ++undone_in_a_row_ >= kMostUndone; }
  // An operator's answer took it back.
  bool has_other_answer(uint64_t replays) {
    return ++other_answers_ >= kMostAnswers && replays < 2 * other_answers_;
  }

  // A replay was not taken back.
  void note_replay() { undone_in_a_row_ = 0; }
  // An input is a tensor that the first recording knows from outside. True: that recording is made anew.
  bool is_alike() { return ++alike_ % kAlike == 0; }

  uint64_t outdated() const { return outdated_; }
  uint64_t differences() const { return differences_; }
  // As differences() was: the last ones do not count.
  void forgive(uint64_t differences) { differences_ = differences; }

 private:
  static constexpr uint64_t kMostDifferences = 4;
  static constexpr uint64_t kMostWaits = 12;
  static constexpr uint64_t kMostOutdated = 8;
  static constexpr uint64_t kMostUndone = 16;
  // When there are not twice as many replays.
  static constexpr uint64_t kMostAnswers = 64;
  // The second recording of a cell in a loop waits for the end of the loop, after which the graph of the first
  // one goes.
  static constexpr uint64_t kMostHeld = 1000;
  static constexpr uint64_t kAlike = 4;

  uint64_t differences_ = 0;
  uint64_t waits_ = 0;
  uint64_t outdated_ = 0;
  uint64_t held_ = 0;
  uint64_t undone_in_a_row_ = 0;
  uint64_t other_answers_ = 0;
  uint64_t alike_ = 0;
};

}  // namespace overdrive::replay
