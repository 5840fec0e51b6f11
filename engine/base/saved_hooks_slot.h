// Whether hooks of hooks/ are active on this thread, for components that may not know that folder. It fills the
// slot when it opens its first scope, and it stays. Any thread. Hooks of the host are not counted.
#pragma once

#include <atomic>

namespace overdrive::base {

class SavedHooksSlot {
 public:
  using Question = bool (*)();

  static void fill(Question question) { question_.store(question, std::memory_order_relaxed); }
  static bool active() {
    const Question question = question_.load(std::memory_order_relaxed);
    return question != nullptr && question();
  }

 private:
  constinit static inline std::atomic<Question> question_{nullptr};
};

}  // namespace overdrive::base
