#include "engine/devices/spin.h"

#include <sched.h>

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

std::atomic<int> participants{0};
std::atomic<long> nobody_before{0};  // until this time nobody spins

int count_processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

bool is_room() {
  static const int processors = count_processors();
  return participants.load(std::memory_order_relaxed) <= processors;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Participants::Participants(int threads) : threads_(threads) {
  participants.fetch_add(threads_, std::memory_order_relaxed);
}
Participants::~Participants() { participants.fetch_sub(threads_, std::memory_order_relaxed); }
void Participants::forget_all() { participants.store(0, std::memory_order_relaxed); }

Spin::Spin() : begin_(now()), granted_(begin_ >= nobody_before.load(std::memory_order_relaxed)) {}

Spin::~Spin() {
  if (!granted_) return;
  const long end = now();
  if (end - begin_ > kSpinNanoseconds + kLoss) nobody_before.store(end + kRest, std::memory_order_relaxed);
}

// The clock and the scheduler are asked now and then: both cost more than a look.
bool Spin::wait() {
  constexpr int kTurns = 32;
  if (!granted_ || !is_room()) return false;
  pause();
  if (++turns_ % kTurns != 0) return true;
  if (now() - begin_ >= kSpinNanoseconds) return false;
  std::this_thread::yield();
  return true;
}

}  // namespace overdrive::engine
