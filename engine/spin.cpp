#include "engine/spin.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace overdrive::engine {
namespace {

std::atomic<int> spinning{0};

int places() {
  static const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return processors > 1 ? processors : 0;
}

bool take_place() {
  if (spinning.fetch_add(1, std::memory_order_relaxed) < places()) return true;
  spinning.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

long now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

SpinPlace::SpinPlace() : granted_(take_place()) {}

SpinPlace::~SpinPlace() {
  if (granted_) spinning.fetch_sub(1, std::memory_order_relaxed);
}

// The clock and the scheduler are asked now and then: both cost more than a look.
bool SpinPlace::wait() {
  constexpr int kTurns = 32;
  pause();
  if (++turns_ % kTurns != 0) return true;
  const long time = now();
  if (end_ == 0) end_ = time + kSpinNanoseconds;
  if (time >= end_) return false;
  std::this_thread::yield();
  return true;
}

}  // namespace overdrive::engine
