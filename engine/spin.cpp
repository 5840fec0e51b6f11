#include "engine/spin.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace overdrive::engine {
namespace {

long now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Where other programs want the processors, a thread that waits awake uses up its share, is set aside for a
// slice of theirs, and unlike one that sleeps is not brought back by the task that comes meanwhile. One
// such loss, and everybody sleeps for a while as soon as there is nothing to do: 4 ms a hand-over were seen on
// a busy machine, where sleeping costs 10 us.
constexpr long kLoss = 100'000;
constexpr long kRest = 1'000'000'000;

std::atomic<int> spinning{0};
std::atomic<long> nobody_before{0};  // until this time nobody spins

int places() {
  static const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return processors > 1 ? processors : 0;
}

bool take_place(long time) {
  if (time < nobody_before.load(std::memory_order_relaxed)) return false;
  if (spinning.fetch_add(1, std::memory_order_relaxed) < places()) return true;
  spinning.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

SpinPlace::SpinPlace() : begin_(now()), granted_(take_place(begin_)) {}

SpinPlace::~SpinPlace() {
  if (!granted_) return;
  spinning.fetch_sub(1, std::memory_order_relaxed);
  const long end = now();
  if (end - begin_ > kSpinNanoseconds + kLoss) nobody_before.store(end + kRest, std::memory_order_relaxed);
}

// The clock and the scheduler are asked now and then: both cost more than a look.
bool SpinPlace::wait() {
  constexpr int kTurns = 32;
  pause();
  if (++turns_ % kTurns != 0) return true;
  if (now() - begin_ >= kSpinNanoseconds) return false;
  std::this_thread::yield();
  return true;
}

}  // namespace overdrive::engine
