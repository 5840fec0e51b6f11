// What the recipes share: the command line, the clock of the training part, and the digest of what was trained.
// A line that ends in "// overdrive" is one that a user adds to a program.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace recipe {

enum class Mode { kStock, kSwitched, kCaptured };

// One training from its beginning to its end. One thread.
class Run {
 public:
  Run(Mode mode, bool is_short) : captured(mode == Mode::kCaptured), mode_(mode), is_short_(is_short) {}

  const bool captured;

  // How many of something there are: in a short run, as tests make it, a fiftieth.
  int64_t many(int64_t all) const { return is_short_ ? (all + 49) / 50 : all; }

  // Calls a training step with the clock running.
  template <typename Step>
  auto timed(Step&& step) {
    const Clock clock(times_);
    return step();
  }

  // Ends the training: what was trained, and the calls that were replayed.
  void done(const std::vector<at::Tensor>& trained, uint64_t replayed);

  Mode mode() const { return mode_; }
  const std::string& digest() const { return digest_; }
  uint64_t replayed() const { return replayed_; }
  // What recipe.py prints: one line of JSON.
  std::string json() const;

 private:
  // Adds the CPU time of a block to a list.
  class Clock {
   public:
    explicit Clock(std::vector<double>& times) : times_(times) {}
    ~Clock() { times_.push_back(now() - begin_); }
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;
    static double now();

   private:
    std::vector<double>& times_;
    const double begin_ = now();
  };

  const Mode mode_;
  const bool is_short_;
  std::vector<double> times_;
  std::string digest_;
  uint64_t replayed_ = 0;
};

// The main() of a recipe: --mode stock|switched|captured|all, and --short. `all` trains in the three modes,
// from one seed, and is an error where parameters differ or nothing was replayed.
int main_of(int argc, char** argv, void (*train)(Run&));

}  // namespace recipe
