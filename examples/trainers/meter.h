// What a training step tells about itself: how long its forwards and backwards took, how many backwards there
// were and how many nodes. Owned by whoever runs the steps; a trainer only passes its calls through. Any
// thread may use it; times of threads that work at once add up.
#pragma once

#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace overdrive::trainers {

class Meter {
 public:
  // What computes the loss, measured.
  template <typename Call>
  auto forward(Call&& call) {
    const Stopwatch watch(forward_nanoseconds_);
    return call();
  }

  // Any call that runs a backward from `root`, measured: torch::autograd::grad(), for example.
  template <typename Call>
  auto measured(const torch::Tensor& root, Call&& call) {
    note(root);
    const Stopwatch watch(backward_nanoseconds_);
    return call();
  }

  // A call that builds a graph and runs it backward in one, an hvp() for example. Its nodes are not seen.
  template <typename Call>
  auto driver(Call&& call) {
    ++backwards_;
    const Stopwatch watch(backward_nanoseconds_);
    return call();
  }

  // loss.backward(), measured.
  void backward(const torch::Tensor& loss) {
    measured(loss, [&] { loss.backward(); });
  }

  // Counting walks the graph before every backward, so it is off while time counts.
  void count_nodes(bool on) { counts_nodes_ = on; }
  // Called with the root of every backward that is seen, before it runs.
  void look_at_roots(std::function<void(const torch::Tensor& root)> look) { look_ = std::move(look); }
  void reset();

  double forward_seconds() const { return static_cast<double>(forward_nanoseconds_.load()) * 1e-9; }
  double backward_seconds() const { return static_cast<double>(backward_nanoseconds_.load()) * 1e-9; }
  int64_t backwards() const { return backwards_.load(); }
  int64_t nodes() const { return nodes_.load(); }

 private:
  struct Stopwatch {
    explicit Stopwatch(std::atomic<int64_t>& into) : total(into), start(std::chrono::steady_clock::now()) {}
    ~Stopwatch() {
      const auto passed = std::chrono::steady_clock::now() - start;
      total += std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
    }
    std::atomic<int64_t>& total;
    const std::chrono::steady_clock::time_point start;
  };

  void note(const torch::Tensor& root);

  std::function<void(const torch::Tensor& root)> look_;  // set before the first step
  std::atomic<bool> counts_nodes_{false};
  std::atomic<int64_t> forward_nanoseconds_{0};
  std::atomic<int64_t> backward_nanoseconds_{0};
  std::atomic<int64_t> backwards_{0};
  std::atomic<int64_t> nodes_{0};
};

}  // namespace overdrive::trainers
