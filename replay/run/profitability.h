// Whether replays are faster than eager calls: some calls go one way and some the other, in turn, and the best
// of each are compared. A value; owned by a Recording. Has no clock: whoever makes the calls gives their times.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace overdrive::replay {

class Profitability {
 public:
  enum class Way : uint8_t { kReplay, kEager };
  enum class Verdict : uint8_t { kOpen, kReplays, kEager };

  // `always`: calls are replayed whatever they take.
  explicit Profitability(bool always) : verdict_(always ? Verdict::kReplays : Verdict::kOpen) {}

  Verdict verdict() const { return verdict_; }
  // Whether the next call shall be timed.
  bool is_open() const { return verdict_ == Verdict::kOpen; }
  // How the next call goes.
  Way next() const { return way_; }
  // A call went that way and took so many nanoseconds.
  void note(Way way, double nanoseconds);
  // Something came in between: times of the round that is under way count no more.
  void interrupt();

  // Both figures, as a sentence; "" while there are none.
  std::string describe() const;

  // Replays that are not looked at: the first ones find cold memory, and lanes try what is faster.
  static constexpr int kFirstReplays = 24;
  // In each block of calls the first ones find what the other way has left in the caches.
  static constexpr int kSettle = 1, kMeasured = 3;
  // Rounds at most, of a block each way. So many in which replays were not slower end it, and one in which they
  // were faster by far; or the first ones, when replays were slower by far in each.
  static constexpr int kRounds = 16, kGoodRounds = 3, kBadRounds = 6;
  // What a replay may take of an eager call, what is far less, and what is far more.
  static constexpr double kMost = 1.01, kFarLess = 0.95, kFarMore = 1.1;

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  void end_round();

  Verdict verdict_;
  Way way_ = Way::kReplay;
  int first_ = 0;
  // Calls of the block that is under way.
  int calls_ = 0;
  int rounds_ = 0, good_ = 0, bad_ = 0;
  // Of the round that is under way, and of all.
  double replay_ = kNone, eager_ = kNone;
  double best_replay_ = kNone, best_eager_ = kNone;
};

}  // namespace overdrive::replay
