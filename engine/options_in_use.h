// The options of the backwards that begin now. Owned by the engine object, never destroyed. A backward on any
// thread reads them without a lock and may read them while others take their place, so a set of options that
// was once in use stays. An equal set is not kept twice: a program that changes its options in a loop has as
// many as it has different ones. One thread at a time may set them.
#pragma once

#include "engine/options.h"

#include <atomic>

namespace overdrive::engine {

class OptionsInUse {
 public:
  const Options& now() const { return now_.load(std::memory_order_acquire)->options; }

  void set(const Options& options) {
    const Kept* kept = last_;
    while (kept != nullptr && !(kept->options == options)) kept = kept->before;
    if (kept == nullptr) kept = last_ = new Kept{options, last_};
    now_.store(kept, std::memory_order_release);
  }

 private:
  struct Kept {
    Options options;
    const Kept* before;
  };

  const Kept* last_ = new Kept{Options{}, nullptr};  // of the thread that sets
  std::atomic<const Kept*> now_{last_};
};

}  // namespace overdrive::engine
