#include "inspect/cost/memory_owners.h"

#include "engine/base/mutex.h"
#include "engine/operators/forward_observer.h"
#include "inspect/cost/allocation_log.h"

#include <map>

namespace overdrive::inspect {

class OwnerNumbers {
 public:
  uint32_t number_of(MemoryKind kind, const std::string& name) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const auto [at, is_new] = numbers_.try_emplace({kind, name}, static_cast<uint32_t>(owners_.size()));
    if (is_new) owners_.emplace_back(kind, name);
    return at->second;
  }
  std::vector<MemoryOwners::Owner> owners() const OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return owners_;
  }

 private:
  mutable base::Mutex mutex_;
  std::map<MemoryOwners::Owner, uint32_t> numbers_ OVERDRIVE_GUARDED_BY(mutex_);
  std::vector<MemoryOwners::Owner> owners_ OVERDRIVE_GUARDED_BY(mutex_){{MemoryKind::kOther, "(no operator)"}};
};

namespace {

// The operators of the thread that measures. Their callbacks are plain functions.
struct MeasuredThread {
  OwnerNumbers* numbers = nullptr;
  engine::ForwardObserver observer;
  int depth = 0;  // operators inside each other
};
thread_local MeasuredThread measured_thread;

struct Counted final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& op) {
  MeasuredThread& thread = measured_thread;
  if (thread.numbers == nullptr) return nullptr;
  auto counted = std::make_unique<Counted>();
  if (thread.depth == 0) {
    AllocationLog::owner() = thread.numbers->number_of(MemoryKind::kActivations, op.name());
  }
  ++thread.depth;  // the last, because LibTorch goes on after an error, and the end has no context then
  return counted;
}
void operator_ends(const at::RecordFunction&, at::ObserverContext* context) {
  MeasuredThread& thread = measured_thread;
  if (context == nullptr || --thread.depth != 0) return;
  AllocationLog::owner() = 0;
}

class OwnersRun final : public engine::RunWatch {
 public:
  explicit OwnersRun(std::shared_ptr<OwnerNumbers> numbers) : numbers_(std::move(numbers)) {
    measured_thread.observer.pause();
  }
  ~OwnersRun() override {
    AllocationLog::owner() = around_;
    measured_thread.observer.resume();
  }

  void before_node(const engine::NodeFacts& facts) override {
    AllocationLog::owner() = numbers_->number_of(MemoryKind::kGradients, facts.node.name());
  }
  // Sums of gradients come after the node that brought the last one, and are that node's.

 private:
  const std::shared_ptr<OwnerNumbers> numbers_;
  const uint32_t around_ = AllocationLog::owner();  // of a node that this backward is nested in
};

class OwnersWatcher final : public engine::Watcher {
 public:
  explicit OwnersWatcher(std::shared_ptr<OwnerNumbers> numbers) : numbers_(std::move(numbers)) {}
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts&) override {
    return std::make_unique<OwnersRun>(numbers_);
  }

 private:
  const std::shared_ptr<OwnerNumbers> numbers_;
};

}  // namespace

MemoryOwners::MemoryOwners()
    : numbers_(std::make_shared<OwnerNumbers>()), watching_(std::make_shared<OwnersWatcher>(numbers_)) {
  measured_thread.numbers = numbers_.get();
  measured_thread.depth = 0;
  measured_thread.observer.start(at::RecordFunctionCallback(&operator_begins, &operator_ends));
}

MemoryOwners::~MemoryOwners() {
  measured_thread.observer.stop();
  measured_thread.numbers = nullptr;
  AllocationLog::owner() = 0;
}

std::vector<MemoryOwners::Owner> MemoryOwners::owners() const { return numbers_->owners(); }

}  // namespace overdrive::inspect
