#include "replay/recording/kept_recordings.h"

#include <algorithm>
#include <limits>

namespace overdrive::replay {

namespace {

// A recording that no call has fitted for this many times as many calls as there are recordings makes room.
constexpr uint64_t kUnusedCalls = 16;

// Recordings for one set of sizes and modes that differ by what parameters were then.
constexpr size_t kMostStates = 4;

// Of all programs of a step; the last used one stays, however large it is.
constexpr size_t kMostProgramBytes = size_t{256} << 20;

// With fewer recordings each is asked whether it fits.
constexpr size_t kFew = 4;

bool is_older(const KeptRecordings::Kept& a, const KeptRecordings::Kept& b) { return a.used < b.used; }

}  // namespace

size_t hash_of(const std::vector<at::Tensor>& inputs) {
  size_t hash = inputs.size();
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    hash = c10::hash_combine(hash, static_cast<size_t>(input.scalar_type()));
    for (const int64_t size : input.sizes()) hash = c10::hash_combine(hash, static_cast<size_t>(size));
  }
  return hash;
}

Recording* KeptRecordings::find(const std::vector<at::Tensor>& inputs, uint64_t call) {
  const Environment environment = Environment::now();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  const size_t hash = all_.size() > kFew ? hash_of(inputs) : 0;
  size_t found = kNone, begun = kNone, waiting = kNone, first_declined = kNone, declined = 0;
  for (size_t i = 0; i < all_.size() && found == kNone; ++i) {
    Recording& recording = *all_[i].recording;
    if ((hash != 0 && hash != all_[i].hash) || !recording.fits(environment, inputs)) continue;
    if (recording.declines()) {
      first_declined = std::min(first_declined, i);
      ++declined;
    } else if (recording.is_ready()) {
      found = i;
    } else {
      size_t& first = recording.has_flags() ? begun : waiting;
      first = std::min(first, i);
    }
  }
  // Another one may be of this state, as of a half that is frozen in turns; or is recorded now.
  if (found == kNone) found = begun;
  if (found == kNone) found = waiting;
  if (found == kNone && declined >= kMostStates) found = first_declined;
  if (found == kNone) return nullptr;
  const auto begin = all_.begin(), at = begin + static_cast<ptrdiff_t>(found);
  if (found > 0) std::rotate(begin, at, at + 1);
  all_.front().used = call;
  return all_.front().recording.get();
}

Recording& KeptRecordings::add(std::unique_ptr<Recording> recording, const std::vector<at::Tensor>& inputs,
                               uint64_t call) {
  all_.insert(all_.begin(), {std::move(recording), call, hash_of(inputs)});
  return *all_.front().recording;
}

void KeptRecordings::keep_within_bytes() {
  size_t bytes = 0;
  for (size_t i = 0; i < all_.size(); ++i) {
    bytes += all_[i].recording->bytes();
    if (i == 0 || bytes <= kMostProgramBytes) continue;
    all_.resize(i);
    return;
  }
}

// One, so that many sets of sizes in turn do not push each other out.
void KeptRecordings::forget_unused(uint64_t call) {
  const auto oldest = std::min_element(all_.begin(), all_.end(), is_older);
  if (oldest == all_.end() || call - oldest->used <= kUnusedCalls * all_.size()) return;
  all_.erase(oldest);
}

const Recording* KeptRecordings::last_used() const {
  const auto last = std::max_element(all_.begin(), all_.end(), is_older);
  return last == all_.end() ? nullptr : last->recording.get();
}

}  // namespace overdrive::replay
