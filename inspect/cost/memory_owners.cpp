#include "inspect/cost/memory_owners.h"

#include "engine/base/mutex.h"
#include "engine/operators/forward_observer.h"
#include "engine/run/watchers.h"
#include "inspect/cost/allocation_log.h"
#include "inspect/cost/step_recorder.h"

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
  StepRecorder* recorder = nullptr;
  engine::ForwardObserver observer;
  int depth = 0;  // operators inside each other
};
thread_local MeasuredThread measured_thread;

struct Counted final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& op) {
  MeasuredThread& thread = measured_thread;
  if (thread.numbers == nullptr) return nullptr;
  if (thread.depth++ == 0) {
    AllocationLog::owner() = thread.numbers->number_of(MemoryKind::kActivations, op.name());
    if (thread.recorder != nullptr) thread.recorder->op_begins(op);
  }
  return std::make_unique<Counted>();
}
void operator_ends(const at::RecordFunction&, at::ObserverContext* context) {
  MeasuredThread& thread = measured_thread;
  if (context == nullptr || --thread.depth != 0) return;
  AllocationLog::owner() = 0;
  if (thread.recorder != nullptr) thread.recorder->op_ends();
}

class OwnersRun final : public engine::RunWatch {
 public:
  OwnersRun(std::shared_ptr<OwnerNumbers> numbers, std::shared_ptr<StepRecorder> recorder,
            const engine::RunFacts& facts)
      : numbers_(std::move(numbers)), recorder_(std::move(recorder)) {
    measured_thread.observer.pause();
    if (recorder_ != nullptr) first_ = recorder_->run_begins(facts);
  }
  ~OwnersRun() override {
    AllocationLog::owner() = around_;
    measured_thread.observer.resume();
  }

  void before_node(const engine::NodeFacts& facts) override {
    AllocationLog::owner() = numbers_->number_of(MemoryKind::kGradients, facts.node.name());
    if (recorder_ != nullptr) recorder_->node_begins(first_ + facts.index);
  }
  void after_node(const engine::NodeFacts& facts, const base::variable_list&, bool) override {
    if (recorder_ != nullptr) recorder_->node_ends(first_ + facts.index);
  }
  // Sums of gradients come after the node that brought the last one, and are that node's.

 private:
  const std::shared_ptr<OwnerNumbers> numbers_;
  const std::shared_ptr<StepRecorder> recorder_;
  size_t first_ = 0;                                // place of the run's nodes in the record
  const uint32_t around_ = AllocationLog::owner();  // of a node that this backward is nested in
};

class OwnersWatcher final : public engine::Watcher {
 public:
  OwnersWatcher(std::shared_ptr<OwnerNumbers> numbers, std::shared_ptr<StepRecorder> recorder)
      : numbers_(std::move(numbers)), recorder_(std::move(recorder)) {}
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    return std::make_unique<OwnersRun>(numbers_, recorder_, facts);
  }

 private:
  const std::shared_ptr<OwnerNumbers> numbers_;
  const std::shared_ptr<StepRecorder> recorder_;
};

}  // namespace

struct MemoryOwners::Parts {
  explicit Parts(StepRecord* record)
      : recorder(record != nullptr ? std::make_shared<StepRecorder>(*record) : nullptr) {}
  ~Parts() {
    if (recorder != nullptr) recorder->stop();
  }
  const std::shared_ptr<OwnerNumbers> numbers = std::make_shared<OwnerNumbers>();
  const std::shared_ptr<StepRecorder> recorder;
  const engine::WatcherScope watching{std::make_shared<OwnersWatcher>(numbers, recorder)};
};

MemoryOwners::MemoryOwners(StepRecord* record) : parts_(std::make_shared<Parts>(record)) {
  measured_thread.numbers = parts_->numbers.get();
  measured_thread.recorder = parts_->recorder.get();
  measured_thread.depth = 0;
  measured_thread.observer.start(
      at::RecordFunctionCallback(&operator_begins, &operator_ends).needsInputs(record != nullptr));
}

MemoryOwners::~MemoryOwners() {
  measured_thread.observer.stop();
  measured_thread.numbers = nullptr;
  measured_thread.recorder = nullptr;
  AllocationLog::owner() = 0;
}

std::vector<MemoryOwners::Owner> MemoryOwners::owners() const { return parts_->numbers->owners(); }

}  // namespace overdrive::inspect
