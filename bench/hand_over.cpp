#include "bench/hand_over.h"

#include "bench/statistics.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace overdrive::bench {
namespace {

class Turns {
 public:
  // Waits for this player's turns and gives each to the other.
  void play(int player, int turns) {
    for (int i = 0; i < turns; ++i) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return whose_ == player; });
        whose_ = 1 - player;
      }
      changed_.notify_one();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int whose_ = 0;
};

}  // namespace

double bare_hand_over_ns(int rounds) {
  constexpr int kTurns = 100;  // of each player
  std::vector<double> samples;
  Turns turns;
  std::thread other([&] { turns.play(1, kTurns * rounds); });
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    turns.play(0, kTurns);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    samples.push_back(spent.count() / (2 * kTurns));
  }
  other.join();
  return median(std::move(samples));
}

}  // namespace overdrive::bench
