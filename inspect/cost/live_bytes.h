// Counts the bytes of CPU tensors, by standing in front of LibTorch's CPU allocator while an object lives. One
// count for the process; any thread may allocate. The first object begins and the last one ends while no other
// thread allocates tensors, because LibTorch changes the allocator without a lock. Does not see tensors that
// were allocated while no object lived.
#pragma once

#include <atomic>
#include <cstdint>

namespace overdrive::inspect {

class LiveBytes {
 public:
  // Hears of every allocation (positive) and release (negative), on its thread, under no lock.
  using Listener = void (*)(const void* memory, int64_t bytes) noexcept;

  LiveBytes();
  ~LiveBytes();
  LiveBytes(const LiveBytes&) = delete;
  LiveBytes& operator=(const LiveBytes&) = delete;

  // Alive now, of what was allocated while an object lived.
  static int64_t now() { return alive.load(std::memory_order_relaxed); }
  // The most that now() was since restart_peak().
  static int64_t peak() { return most.load(std::memory_order_relaxed); }
  static void restart_peak() { most.store(now(), std::memory_order_relaxed); }
  // One at a time; null for none.
  static void set_listener(Listener listener) { heard.store(listener, std::memory_order_release); }

 private:
  friend class CountingAllocator;
  static inline std::atomic<int64_t> alive{0}, most{0};
  static inline std::atomic<Listener> heard{nullptr};
};

}  // namespace overdrive::inspect
