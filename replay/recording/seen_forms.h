// Calls that have no recording and may get none yet, by what tells them apart, and which of them come again.
// Owned by a CapturedFunction; one thread at a time. Forgets what was seen first when there are many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace overdrive::replay {

class SeenForms {
 public:
  // A call with a recording.
  void note_known() { last_ = 0; }

  // Whether a call had the form before, and another one came in between. `pause`: another number where calls in
  // between went past this.
  bool comes_again(size_t form, int64_t pause) {
    if (form != last_ || pause != pause_) ++turn_;
    last_ = form;
    pause_ = pause;
    for (const auto& [seen, turn] : seen_)
      if (seen == form) return turn != turn_;
    if (seen_.size() == kMost) seen_.pop_front();
    seen_.emplace_back(form, turn_);
    return false;
  }

 private:
  static constexpr size_t kMost = 64;
  std::deque<std::pair<size_t, uint64_t>> seen_;
  size_t last_ = 0;
  int64_t pause_ = 0;
  uint64_t turn_ = 0;
};

}  // namespace overdrive::replay
