#include "inspect/errors/thread_note.h"

#include "engine/overdrive_engine.h"
#include "engine/run/watchers.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace overdrive::inspect {
namespace {

using engine::NodeFacts;

// Note [Too small for threads]: LibTorch splits a loop over elements from 32,768 of them
// (at::internal::GRAIN_SIZE), and hands products of any size to the vendor's threads. A product whose operands
// have fewer elements than this takes some tens of microseconds, as the hand-over to another core does. A
// backward counts as small where no gradient that a node takes or makes is larger; gradients have the sizes of
// the forward's tensors. Rejected: to time both numbers of threads, since another number gives other bits; and
// to compare CPU time with wall time, since waiting threads spin on some systems.
constexpr int64_t kLargeElements = 8192;
constexpr uint64_t kBackwards = 128;
constexpr uint64_t kMostLarge = kBackwards / 16;

struct Counts {
  std::atomic<uint64_t> followed{0};
  std::atomic<uint64_t> large{0};
  std::atomic<int64_t> largest{0};  // gradient of a small backward
};

void raise_to(std::atomic<int64_t>& most, int64_t value) {
  int64_t now = most.load(std::memory_order_relaxed);
  while (now < value && !most.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

int64_t elements_of(const base::variable_list& gradients) {
  int64_t most = 0;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    // A nested tensor has no such number, and a tensor of a device is no matter of these threads.
    most = std::max(most, gradient.is_nested() || !gradient.is_cpu() ? kLargeElements : gradient.numel());
  }
  return most;
}

class SizesOfRun final : public engine::RunWatch {
 public:
  SizesOfRun(std::shared_ptr<Counts> counts, const engine::Watcher& watcher)
      : counts_(std::move(counts)), watcher_(watcher) {}

  void before_node(const NodeFacts& facts) override { raise_to(largest_, elements_of(facts.inputs)); }
  void after_node(const NodeFacts&, const base::variable_list& outputs, bool) override {
    raise_to(largest_, elements_of(outputs));
  }
  void end(const std::exception_ptr& error) override {
    const int64_t largest = largest_.load(std::memory_order_relaxed);
    if (largest >= kLargeElements) {
      counts_->large.fetch_add(1, std::memory_order_relaxed);
    } else {
      raise_to(counts_->largest, largest);
    }
    if (counts_->followed.fetch_add(1, std::memory_order_relaxed) + 1 != kBackwards) return;
    engine::remove_watcher(watcher_);
    if (error == nullptr && counts_->large.load(std::memory_order_relaxed) <= kMostLarge) warn();
  }

 private:
  void warn() const {
    TORCH_WARN(
        "Overdrive: nearly all backwards of this process work on tensors of at most ", counts_->largest.load(),
        " elements, and LibTorch has ", at::get_num_threads(),
        " threads set, which wait longer on such tensors than they work. OMP_NUM_THREADS=1, or "
        "at::set_num_threads(1), torch.set_num_threads(1), is often faster; the last bits may be others. "
        "overdrive.advise() times both.");
  }

  const std::shared_ptr<Counts> counts_;
  const engine::Watcher& watcher_;  // compared with the list only
  std::atomic<int64_t> largest_{0};
};

class ThreadNote final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    const bool asked = engine::OverdriveEngine::get().options().verbose;
    // A backward inside another is a part of it.
    if (!asked || facts.depth > 0 || at::get_num_threads() == 1) return nullptr;
    return std::make_unique<SizesOfRun>(counts_, *this);
  }

 private:
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace

void note_threads() {
  [[maybe_unused]] static const bool kAdded = (engine::add_watcher(std::make_shared<ThreadNote>()), true);
}

}  // namespace overdrive::inspect
