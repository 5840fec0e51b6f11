#include "inspect/nan/nan_watch.h"

#include "engine/base/mutex.h"
#include "engine/check_installed.h"
#include "engine/overdrive_engine.h"
#include "engine/run/watchers.h"
#include "inspect/errors/nan_warning.h"
#include "inspect/errors/node_path.h"
#include "inspect/graph/saved_tensors.h"
#include "inspect/nan/tensor_range.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace overdrive {

namespace inspect {
// The one report, shared by the runs that are watched.
class NanFinding {
 public:
  bool found() const { return found_.load(std::memory_order_relaxed); }
  void set(NanReport report) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (!report_.has_value()) report_ = std::move(report);
    found_.store(true, std::memory_order_relaxed);
  }
  std::optional<NanReport> get() const OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return report_;
  }

 private:
  std::atomic<bool> found_{false};
  mutable base::Mutex mutex_;
  std::optional<NanReport> report_ OVERDRIVE_GUARDED_BY(mutex_);
};
}  // namespace inspect

namespace {

using engine::NodeFacts;
using inspect::NanFinding;
using inspect::range_of;
using inspect::ValueRange;

// Every gradient is looked at once, when its node has made it; sums are looked at when their node takes them.
// The ranges of a node's inputs are therefore known when the node has used the inputs up.
class WatchedForNan final : public engine::RunWatch {
 public:
  WatchedForNan(std::shared_ptr<NanFinding> finding, const engine::RunFacts& facts)
      : finding_(std::move(finding)), plan_(facts.plan), roots_(facts.roots), slots_(plan_.num_slots()) {}

  void before_node(const NodeFacts& facts) override {
    if (over()) return;
    const uint32_t first = plan_.nodes[facts.index].first_slot;
    const uint32_t count = plan_.num_inputs(facts.index);
    for (uint32_t i = 0; i < count && i < facts.inputs.size(); ++i) {
      const Slot slot = take(first + i);
      if (slot.arrived == 1) continue;  // looked at by its maker
      const ValueRange sum = range_of(facts.inputs[i]);
      put(first + i, sum);
      if (sum.finite) continue;
      NanReport report = report_on(facts, slot.arrived == 0 && facts.index == 0 ? "" : facts.node.name());
      report.by_sum = slot.arrived > 1;
      finish(std::move(report));
      return;
    }
  }

  void after_node(const NodeFacts& facts, const base::variable_list& outputs, bool) override {
    if (over()) return;
    const base::edge_list& edges = facts.node.next_edges();
    const at::Tensor* last = nullptr;
    ValueRange range;
    for (size_t i = 0; i < outputs.size() && i < edges.size(); ++i) {
      if (!edges[i].is_valid()) continue;
      // Nodes such as that of an addition return one tensor several times.
      if (last == nullptr || !outputs[i].is_same(*last)) range = range_of(outputs[i]);
      last = &outputs[i];
      if (!range.finite) return blame(facts, i);
      arrive(facts.index, i, edges[i].input_nr, range);
    }
  }

 private:
  struct Slot {
    ValueRange range;
    uint32_t arrived = 0;
  };

  bool over() const { return over_.load(std::memory_order_relaxed) || finding_->found(); }

  // Nodes of several threads may send to one slot.
  Slot take(uint32_t slot) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return slots_[slot];
  }
  void put(uint32_t slot, const ValueRange& range) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    slots_[slot].range = range;
  }
  void arrive(uint32_t from, size_t edge, uint32_t input, const ValueRange& range) OVERDRIVE_EXCLUDES(mutex_) {
    if (edge >= plan_.num_edges(from)) return;  // a hook has added the edge
    const uint32_t target = plan_.targets[plan_.nodes[from].first_edge + edge];
    if (target == engine::NodeTable::kNone || input >= plan_.num_inputs(target)) return;
    const base::MutexLock lock(mutex_);
    Slot& slot = slots_[plan_.nodes[target].first_slot + input];
    slot.range.add(range);
    ++slot.arrived;
  }

  void blame(const NodeFacts& facts, size_t output) {
    const bool given = facts.index == 0 && plan_.num_inputs(0) == 0;  // LibTorch's node of several roots
    NanReport report = report_on(facts, given ? "" : facts.node.name());
    report.output = static_cast<int>(output);
    const inspect::SavedTensors saved = inspect::saved_tensors_of(facts.node.getptr());
    report.saved_not_finite = std::any_of(saved.tensors.begin(), saved.tensors.end(),
                                          [](const at::Tensor& tensor) { return !range_of(tensor).finite; });
    finish(std::move(report));
  }

  NanReport report_on(const NodeFacts& facts, std::string name) {
    NanReport report;
    report.node = std::move(name);
    report.sequence_nr = facts.node.sequence_nr();
    report.path = inspect::path_to(facts.index, plan_, roots_);
    const uint32_t first = plan_.nodes[facts.index].first_slot;
    for (uint32_t i = 0; i < plan_.num_inputs(facts.index); ++i) {
      const ValueRange range = take(first + i).range;
      const bool known = range.finite && !range.empty();
      report.inputs.push_back({known, known ? range.least : 0, known ? range.most : 0});
    }
    return report;
  }

  void finish(NanReport report) {
    if (over_.exchange(true)) return;
    finding_->set(std::move(report));
  }

  const std::shared_ptr<NanFinding> finding_;
  const engine::Plan& plan_;
  const base::edge_list& roots_;
  std::atomic<bool> over_{false};
  base::Mutex mutex_;
  std::vector<Slot> slots_ OVERDRIVE_GUARDED_BY(mutex_);
};

// OVERDRIVE_NAN=first: one warning a process.
class WarnOfNan final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    if (engine::OverdriveEngine::get().options().nan != engine::Nan::kFirst || finding_->found())
      return nullptr;
    return std::make_unique<Run>(finding_, facts);
  }

 private:
  struct Run final : engine::RunWatch {
    Run(const std::shared_ptr<NanFinding>& to, const engine::RunFacts& facts) : finding(to), watch(to, facts) {}
    void before_node(const NodeFacts& facts) override { watch.before_node(facts); }
    void after_node(const NodeFacts& facts, const base::variable_list& outputs, bool native) override {
      watch.after_node(facts, outputs, native);
    }
    void end(const std::exception_ptr&) override {
      if (!finding->found()) return;
      static std::atomic<bool> told{false};
      if (!told.exchange(true)) TORCH_WARN("Overdrive: ", finding->get()->text());
    }
    const std::shared_ptr<NanFinding> finding;
    WatchedForNan watch;
  };
  const std::shared_ptr<NanFinding> finding_ = std::make_shared<NanFinding>();
};

}  // namespace

void inspect::warn_of_nan() {
  [[maybe_unused]] static const bool kAdded = (engine::add_watcher(std::make_shared<WarnOfNan>()), true);
}

std::string NanReport::text() const {
  if (node.empty()) return "The gradients that a backward began with hold a NaN or an infinity.";
  std::string text = c10::str("Node ", node);
  if (sequence_nr != UINT64_MAX) text += c10::str(" #", sequence_nr);
  if (by_sum) {
    text += " got finite gradients whose sum holds a NaN or an infinity";
  } else {
    text += c10::str(" made a NaN or an infinity in gradient ", output, " out of finite gradients");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].known) text += c10::str("; input ", i, " from ", inputs[i].least, " to ", inputs[i].most);
  }
  if (saved_not_finite) text += "; a tensor that its forward saved was not finite already";
  return text + (path.empty() ? "" : "; path " + path) + ".";
}

class NanWatch::Watching final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    return finding->found() ? nullptr : std::make_unique<WatchedForNan>(finding, facts);
  }
  const std::shared_ptr<inspect::NanFinding> finding = std::make_shared<inspect::NanFinding>();
};

NanWatch::NanWatch() : watching_(std::make_shared<Watching>()) {
  engine::check_installed("A NanWatch watches backwards on Overdrive");
  engine::add_watcher(watching_);
}
NanWatch::~NanWatch() { engine::remove_watcher(*watching_); }
std::optional<NanReport> NanWatch::first() const { return watching_->finding->get(); }

}  // namespace overdrive
