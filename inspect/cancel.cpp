#include "inspect/cancel.h"

#include "engine/base/mutex.h"
#include "engine/check_installed.h"
#include "engine/host/shared_object.h"
#include "engine/run/active_run.h"
#include "engine/run/watchers.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <utility>

namespace overdrive {

namespace inspect {
// A scope, as its backwards see it.
class Stop {
 public:
  Stop(StopOptions stop_options, int32_t outermost) : options(std::move(stop_options)), depth(outermost) {}

  const StopOptions options;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  const int32_t depth;  // of the outermost backwards

  // Null: the backward goes on.
  const char* reason_to_stop() const {
    if (options.token.is_cancelled()) return "the token was cancelled";
    if (options.deadline.has_value() && std::chrono::steady_clock::now() - begin >= *options.deadline) {
      return "the deadline has passed";
    }
    return nullptr;
  }

  // Of the last outermost backward that failed, with those nested in it.
  std::vector<at::Tensor> accumulated() const OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return accumulated_;
  }
  void forget_last() OVERDRIVE_EXCLUDES(mutex_) {
    std::vector<at::Tensor> old;  // destroyed outside of the lock
    {
      const base::MutexLock lock(mutex_);
      old.swap(accumulated_);
    }
    set_stopped(std::nullopt);
  }
  void add_accumulated(const std::vector<at::Tensor>& leaves) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    accumulated_.insert(accumulated_.end(), leaves.begin(), leaves.end());
  }

  // Of the last outermost backward, or of one that is nested in it.
  std::optional<Cancelled> stopped() const OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return stopped_;
  }
  void set_stopped(std::optional<Cancelled> error) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    stopped_.swap(error);  // the old one is destroyed outside of the lock
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<at::Tensor> accumulated_ OVERDRIVE_GUARDED_BY(mutex_);
  std::optional<Cancelled> stopped_ OVERDRIVE_GUARDED_BY(mutex_);
};
}  // namespace inspect

namespace {

using engine::NodeFacts;
using inspect::Stop;
using StopPtr = std::shared_ptr<Stop>;

// The scopes whose backwards run on this thread: of the thread itself, and of a node that a worker runs. A
// plain pointer, because the destructor of a late tensor may run a backward when thread-locals are gone.
struct StopHere {
  StopPtr stop;
  StopHere* outer;
};
constinit thread_local StopHere* innermost_stop = nullptr;

void enter(const StopPtr& stop) { innermost_stop = new StopHere{stop, innermost_stop}; }
void leave(const Stop& stop) {
  for (StopHere** at = &innermost_stop; *at != nullptr; at = &(*at)->outer) {
    if ((*at)->stop.get() != &stop) continue;
    const std::unique_ptr<StopHere> left(*at);
    *at = left->outer;
    return;
  }
}
bool is_here(const Stop& stop) {
  const StopHere* at = innermost_stop;
  while (at != nullptr && at->stop.get() != &stop) at = at->outer;
  return at != nullptr;
}

class StoppableRun final : public engine::RunWatch {
 public:
  StoppableRun(StopPtr stop, const engine::RunFacts& facts)
      : stop_(std::move(stop)), outermost_(facts.depth == stop_->depth) {
    for (const engine::PlannedNode& node : facts.plan.nodes) total_ += node.needed;
    if (outermost_) stop_->forget_last();
  }

  void may_go_on(uint32_t) override {
    if (outermost_ && stop_->options.progress) stop_->options.progress(done_.load(), total_);
    if (const char* reason = stop_->reason_to_stop()) throw Cancelled(reason, done_.load(), total_);
  }

  // A worker does not know the scope of the thread that it works for.
  void before_node(const NodeFacts&) override { enter(stop_); }
  void after_node(const NodeFacts& facts, const base::variable_list&, bool) override {
    leave(*stop_);
    done_.fetch_add(1);
    if (engine::host::kind_of(facts.node) != engine::host::NodeKind::kAccumulateGrad) return;
    const base::MutexLock lock(mutex_);
    leaves_.push_back(static_cast<torch::autograd::AccumulateGrad&>(facts.node).variable);
  }
  void node_failed(const NodeFacts&) noexcept override { leave(*stop_); }

  void end(const std::exception_ptr& error) override {
    if (error == nullptr) {
      if (outermost_) stop_->set_stopped(std::nullopt);
      if (outermost_ && stop_->options.progress) stop_->options.progress(total_, total_);
      return;
    }
    const std::vector<at::Tensor> leaves = take_leaves();
    stop_->add_accumulated(leaves);
    try {
      std::rethrow_exception(error);
    } catch (Cancelled& cancelled) {  // the object that the caller will get
      cancelled.add(leaves);
      stop_->set_stopped(cancelled);
    } catch (...) {
    }
  }

 private:
  std::vector<at::Tensor> take_leaves() OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return std::move(leaves_);
  }

  const StopPtr stop_;
  const bool outermost_;
  size_t total_ = 0;
  std::atomic<size_t> done_{0};
  base::Mutex mutex_;
  std::vector<at::Tensor> leaves_ OVERDRIVE_GUARDED_BY(mutex_);
};

int32_t depth_of_next_backward() {
  const engine::ActiveRun* around = engine::thread_context().innermost;
  return around == nullptr ? 0 : around->depth + 1;
}

}  // namespace

Cancelled::Cancelled(const std::string& reason, size_t done, size_t total)
    : std::runtime_error("A backward was stopped after " + std::to_string(done) + " of " +
                         std::to_string(total) + " nodes: " + reason + "."),
      done_(done),
      total_(total) {}

Cancelled::~Cancelled() = default;

void Cancelled::add(const std::vector<at::Tensor>& leaves) {
  accumulated_.insert(accumulated_.end(), leaves.begin(), leaves.end());
}

class StopScope::Watching final : public engine::Watcher {
 public:
  explicit Watching(StopOptions options)
      : stop(std::make_shared<Stop>(std::move(options), depth_of_next_backward())) {}

  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    return is_here(*stop) ? std::make_unique<StoppableRun>(stop, facts) : nullptr;
  }
  bool runs_user_code() const override { return static_cast<bool>(stop->options.progress); }

  const StopPtr stop;
};

StopScope::StopScope(StopOptions options) : watching_(std::make_shared<Watching>(std::move(options))) {
  engine::check_installed("A StopScope stops backwards on Overdrive");
  enter(watching_->stop);
  engine::add_watcher(watching_);
}

StopScope::~StopScope() {
  engine::remove_watcher(*watching_);
  leave(*watching_->stop);
}

std::vector<at::Tensor> StopScope::accumulated() const { return watching_->stop->accumulated(); }

std::optional<Cancelled> StopScope::stopped() const { return watching_->stop->stopped(); }

}  // namespace overdrive
