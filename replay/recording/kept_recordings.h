// The recordings of a captured function, one for each call signature and state of what is outside, the last
// used one first. Owned by a CapturedFunction; one thread at a time. Makes room, and records nothing.
#pragma once

#include "replay/recording/recording.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace overdrive::replay {

// Of sizes and types alone: recordings with another one do not fit.
size_t hash_of(const std::vector<at::Tensor>& inputs);

class KeptRecordings {
 public:
  struct Kept {
    std::unique_ptr<Recording> recording;
    // The number of the last call that it took.
    uint64_t used;
    // Of the inputs' sizes and types.
    size_t hash;
  };

  // The recording that takes the call with this number, or null.
  Recording* find(const std::vector<at::Tensor>& inputs, uint64_t call);
  Recording& add(std::unique_ptr<Recording> recording, const std::vector<at::Tensor>& inputs, uint64_t call);
  void clear() { all_.clear(); }

  // Before add(): drops one that no call has fitted for long, and those that need too much memory.
  void forget_unused(uint64_t call);
  void keep_within_bytes();

  size_t size() const { return all_.size(); }
  const std::vector<Kept>& all() const { return all_; }
  // The one that took a call last, or null.
  const Recording* last_used() const;

 private:
  std::vector<Kept> all_;
};

}  // namespace overdrive::replay
