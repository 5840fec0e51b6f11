#include "test/stress/soak/soak.h"

#include "engine/engine.h"
#include "test/stress/soak/program.h"
#include "test/stress/soak/soak_internal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>

namespace overdrive::soak {

namespace {

using Clock = std::chrono::steady_clock;
using torch::autograd::Engine;

constexpr size_t kMostFailures = 10;

// One round: its threads share this and nothing else.
class Round {
 public:
  Round(uint64_t seed, int threads, Clock::time_point end, const std::function<bool()>& stop)
      : seed_(seed), threads_(threads), end_(end), stop_(stop) {}

  RoundResult run() {
    std::vector<std::thread> workers;
    for (int i = 0; i < threads_; ++i) workers.emplace_back([this, i] { run_programs(i); });
    workers.emplace_back([this] { switch_engines(); });
    fork_now_and_then();
    for (std::thread& worker : workers) worker.join();
    uninstall();
    RoundResult result;
    result.programs = programs_;
    result.switches = switches_;
    result.forks = forks_;
    result.failures = failures_;
    return result;
  }

 private:
  bool goes_on() const { return Clock::now() < end_ && failure_count_ < kMostFailures && !stop_(); }

  // The same program on stock and on whichever engine is the default at the moment.
  void run_programs(int worker) {
    for (uint64_t i = 0; goes_on(); ++i) {
      gate_.lock();  // which a fork keeps closed until everybody is through
      gate_.unlock();
      const std::shared_lock between_forks(forking_);
      const uint64_t program = seed_ + (i * static_cast<uint64_t>(threads_) + static_cast<uint64_t>(worker));
      const Outcome stock = run_program(program, &Engine::get_base_engine());
      const std::string what = difference(stock, run_program(program, nullptr));
      if (!what.empty()) fail("program " + std::to_string(program) + ": " + what);
      ++programs_;
    }
  }

  void switch_engines() {
    std::mt19937_64 random(seed_);
    while (goes_on()) {
      random() % 4 == 0 ? static_cast<void>(uninstall()) : install();
      ++switches_;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
  }

  void fork_now_and_then() {
    while (goes_on()) {
      std::this_thread::sleep_for(
          std::min<Clock::duration>(std::chrono::milliseconds(300), end_ - Clock::now()));
      const uint64_t program = seed_ + static_cast<uint64_t>(forks_) * 7919;
      const std::string what = run_in_child(program);
      if (!what.empty()) fail("program " + std::to_string(program) + " in a forked child: " + what);
      ++forks_;
    }
  }

  // The child is right, ends by itself, and ends with 0. Forked between two programs of the other threads, and
  // while one of them switches: LibTorch takes a lock of its profiler's for every node that stock runs, and a
  // child that is forked while another thread has it waits for it for ever, on stock too.
  std::string run_in_child(uint64_t program) {
    std::unique_lock closed(gate_);
    std::unique_lock nobody_runs(forking_);
    const pid_t child = fork();
    if (child != 0) {
      nobody_runs.unlock();
      closed.unlock();
    }
    if (child < 0) return "fork failed";
    if (child == 0) {
      const Outcome stock = run_program(program, &Engine::get_base_engine());
      install();
      _exit(difference(stock, run_program(program, nullptr)).empty() ? 0 : 1);
    }
    const auto patience = Clock::now() + std::chrono::seconds(60);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      if (Clock::now() > patience) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return "did not end in 60 s";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : "differs from stock";
  }

  void fail(std::string what) {
    const std::lock_guard lock(mutex_);
    if (failures_.size() < kMostFailures) failures_.push_back(std::move(what));
    ++failure_count_;
  }

  const uint64_t seed_;
  const int threads_;
  const Clock::time_point end_;
  const std::function<bool()>& stop_;
  std::mutex gate_;
  std::shared_mutex forking_;
  std::atomic<int64_t> programs_{0};
  std::atomic<int64_t> switches_{0};
  std::atomic<size_t> failure_count_{0};
  // The main thread's.
  int64_t forks_ = 0;
  std::mutex mutex_;
  // Guarded by mutex_ while the round runs.
  std::vector<std::string> failures_;
};

}  // namespace

std::vector<std::string> run(const SoakOptions& options,
                             const std::function<void(const RoundResult&)>& on_round) {
  constexpr int64_t kFewestRounds = 4;
  constexpr double kLongestRoundSeconds = 60;
  const double seconds = options.minutes * 60;
  const double round_seconds = std::min(seconds / kFewestRounds, kLongestRoundSeconds);
  const auto rounds = std::max(kFewestRounds, static_cast<int64_t>(seconds / round_seconds));
  overdrive::keep_memory(0);  // free memory that glibc keeps for the next step would look like a leak
  std::vector<std::string> failures;
  ProcessState settled;
  for (int64_t i = 0; i < rounds && failures.empty() && !options.stop(); ++i) {
    const auto length =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(round_seconds));
    Round round(options.seed + static_cast<uint64_t>(i) * 1'000'000'007, options.threads, Clock::now() + length,
                options.stop);
    RoundResult result = round.run();
    result.round = i;
    result.after = process_state();
    if (i == 1) settled = result.after;
    if (i > 1) {
      for (std::string& what : growth(settled, result.after)) result.failures.push_back(std::move(what));
    }
    failures = result.failures;
    on_round(result);
  }
  return failures;
}

}  // namespace overdrive::soak
