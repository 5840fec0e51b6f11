// A number that one thread sets and others await: awake for a while, then asleep in the kernel. Owned by who
// shares it; any thread may look. Setting it costs a store and a load while nobody sleeps.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace overdrive::replay {

// A moment of waiting awake. One who waits for long gives the processor to others that want it: where there are
// fewer processors than threads, the thread that is awaited may be one of these.
class Awake {
 public:
  using Clock = std::chrono::steady_clock;

  // False: the time is up. The clock and the scheduler are asked now and then, since both cost more than a
  // look.
  bool wait(std::chrono::microseconds most) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
    constexpr int kTurns = 64;
    if (++turns_ % kTurns != 0) return true;
    const Clock::time_point now = Clock::now();
    if (turns_ == kTurns) begin_ = now;
    if (now - begin_ >= most) return false;
    if (turns_ >= 8 * kTurns) sched_yield();
    return true;
  }

 private:
  int turns_ = 0;
  Clock::time_point begin_;
};

class alignas(64) Signal {
 public:
  uint32_t now() const { return value_.load(std::memory_order_acquire); }
  // The store and the look at the sleepers keep their order, as those of a sleeper do: one of the two sees the
  // other.
  void set(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    wake();
  }
  bool change(uint32_t from, uint32_t to) {
    if (!value_.compare_exchange_strong(from, to, std::memory_order_seq_cst)) return false;
    wake();
    return true;
  }
  // Where nobody can be waiting.
  void reset(uint32_t value) { value_.store(value, std::memory_order_relaxed); }

  // Returns when `reached` holds for the number. `awake`: for how long at most before the thread sleeps.
  template <typename Reached>
  void await(std::chrono::microseconds awake, const Reached& reached) {
    Awake moment;
    do {
      if (reached(now())) return;
    } while (awake.count() > 0 && moment.wait(awake));
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (true) {
      const uint32_t seen = value_.load(std::memory_order_seq_cst);
      if (reached(seen)) break;
      syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void wake() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace overdrive::replay
