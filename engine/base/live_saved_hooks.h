// How many hooks of saved tensors live in this process. While one does, a backward may run the program's code
// where it unpacks a tensor. Each object of hooks has a LiveSavedHooks for as long as it lives. Any thread: a
// thread that has a graph sees the hooks in it, because the graph came to it in an ordered way.
#pragma once

#include <atomic>
#include <cstdint>

namespace overdrive::base {

class LiveSavedHooks {
 public:
  LiveSavedHooks() { alive_.fetch_add(1, std::memory_order_relaxed); }
  ~LiveSavedHooks() { alive_.fetch_sub(1, std::memory_order_relaxed); }
  LiveSavedHooks(const LiveSavedHooks&) = delete;
  LiveSavedHooks& operator=(const LiveSavedHooks&) = delete;

  static bool any() { return alive_.load(std::memory_order_relaxed) != 0; }

 private:
  constinit static inline std::atomic<int64_t> alive_{0};
};

}  // namespace overdrive::base
