#include "hooks/memory/fetch_ahead.h"

#include "engine/base/counters.h"
#include "engine/base/job_thread.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/plan/serial_order.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace overdrive::hooks {
namespace {
// The units by the node that they were noted for, and the thread that fetches. One a process.
class Saved {
 public:
  static Saved& get() {
    static base::NoDestructor<Saved> saved;
    return *saved;
  }

  void note(const SaveInfo& info, const Schedule& schedule, const std::shared_ptr<PackUnit>& unit)
      OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    known_[{info.thread, info.sequence_nr}].push_back({unit, schedule});
    if (known_.size() >= look_for_dead_at_) forget_dead();
  }

  // The units of the nodes of the plan. `place` is the node's number in the plan.
  std::vector<Wanted> wanted(const engine::Plan& plan) OVERDRIVE_EXCLUDES(mutex_) {
    std::vector<Wanted> wanted;
    const base::MutexLock lock(mutex_);
    if (known_.empty()) return wanted;
    for (uint32_t index = 0; index < plan.nodes.size(); ++index) {
      base::Node& node = *plan.nodes[index].node;
      const auto found = known_.find({node.thread_id(), node.sequence_nr()});
      if (found == known_.end()) continue;
      for (const Entry& entry : found->second) {
        if (entry.unit.expired()) continue;
        wanted.push_back({index, base::WeakNodePtr(node.getptr()), entry.unit, entry.schedule});
      }
    }
    return wanted;
  }

  void fetch(const std::shared_ptr<PackUnit>& unit, const base::WeakNodePtr& node) OVERDRIVE_EXCLUDES(mutex_) {
    {
      const base::MutexLock lock(mutex_);
      expected_.push_back(unit);
    }
    thread_.push([this, weak_unit = std::weak_ptr(unit), weak_node = node] {
      const auto alive = weak_unit.lock();
      expect_others_than(alive.get());
      if (alive != nullptr) alive->fetch_ahead(weak_node.lock());
    });
  }

 private:
  friend class base::NoDestructor<Saved>;
  struct Key {
    uint64_t thread, sequence_nr;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return key.sequence_nr * 0x9E3779B97F4A7C15ULL + key.thread; }
  };
  struct Entry {
    std::weak_ptr<PackUnit> unit;
    Schedule schedule;
  };

  // Before the thread is busy with one unit it tells the hooks of those in line.
  void expect_others_than(const PackUnit* unit) OVERDRIVE_EXCLUDES(mutex_) {
    std::vector<std::weak_ptr<PackUnit>> expected;
    {
      const base::MutexLock lock(mutex_);
      expected.swap(expected_);
    }
    for (const auto& weak : expected) {
      const auto other = weak.lock();
      if (other != nullptr && other.get() != unit) other->expect_unpack();
    }
  }

  void forget_dead() OVERDRIVE_REQUIRES(mutex_) {
    const auto is_dead = [](const Entry& one) { return one.unit.expired(); };
    for (auto& [key, entries] : known_) std::erase_if(entries, is_dead);
    std::erase_if(known_, [](const auto& one) { return one.second.empty(); });
    look_for_dead_at_ = std::max<size_t>(64, 2 * known_.size());
  }

  base::ProcessMutex mutex_{"units to fetch"};
  std::unordered_map<Key, std::vector<Entry>, Hash> known_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t look_for_dead_at_ OVERDRIVE_GUARDED_BY(mutex_) = 64;
  std::vector<std::weak_ptr<PackUnit>> expected_ OVERDRIVE_GUARDED_BY(mutex_);  // in line since it last looked
  base::JobThread& thread_ = base::JobThread::of_process("overdrive-fetch");
};

}  // namespace

void fetch_ahead_for(const SaveInfo& info, const Schedule& schedule, const std::shared_ptr<PackUnit>& unit) {
  Saved::get().note(info, schedule, unit);
}

std::unique_ptr<engine::RunWatch> fetch_ahead_in(const engine::Plan& plan) noexcept try {
  std::vector<Wanted> found = Saved::get().wanted(plan);
  if (found.empty()) return nullptr;
  const std::vector<uint32_t> order = engine::serial_order(plan);
  constexpr uint32_t kNever = UINT32_MAX;  // a node that will not run
  std::vector<uint32_t> places(plan.nodes.size(), kNever);
  for (uint32_t place = 0; place < order.size(); ++place) places[order[place]] = place;
  for (Wanted& one : found) one.place = places[one.place];
  std::erase_if(found, [](const Wanted& one) { return one.place == kNever; });
  if (found.empty()) return nullptr;
  std::stable_sort(found.begin(), found.end(),
                   [](const Wanted& a, const Wanted& b) { return a.place < b.place; });
  return std::make_unique<FetchAhead>(std::move(places), std::move(found));
} catch (...) {
  return nullptr;  // for want of memory: the backward does without
}

FetchAhead::~FetchAhead() {
  for (size_t i = 0;; ++i) {
    std::shared_ptr<PackUnit> unit;  // outlives the lock: its last owner may be here
    {
      const base::MutexLock lock(mutex_);
      if (i == wanted_.size()) return;
      if (wanted_[i].started) unit = wanted_[i].unit.lock();
    }
    if (unit != nullptr) unit->forget_fetched();
  }
}

void FetchAhead::may_go_on(uint32_t node) {
  try {
    for (const auto& unit : passed_by(places_[node])) unit->passed_fetch();
    start(within_reach(places_[node]));
  } catch (...) {  // a thread that cannot be had, or memory: the nodes fetch for themselves
  }
}

FetchAhead::Units FetchAhead::passed_by(uint32_t place) {
  Units passed;
  const base::MutexLock lock(mutex_);
  for (; done_ < wanted_.size() && wanted_[done_].place < place; ++done_) {
    if (!wanted_[done_].started) continue;
    if (auto unit = wanted_[done_].unit.lock()) passed.push_back(std::move(unit));
  }
  return passed;
}

std::vector<FetchAhead::Candidate> FetchAhead::within_reach(uint32_t place) {
  std::vector<Candidate> found;  // outlive the lock: a unit's or node's last owner may be here
  std::vector<base::WeakNodePtr> passed;
  const base::MutexLock lock(mutex_);
  for (; next_ < wanted_.size() && wanted_[next_].place <= place; ++next_) {
    passed.push_back(std::exchange(wanted_[next_].node, base::WeakNodePtr(base::NodePtr())));
  }
  int nodes = 0;
  int64_t bytes = 0;
  uint32_t last = place;
  for (size_t i = next_; i < wanted_.size(); ++i) {
    const Wanted& one = wanted_[i];
    nodes += one.place != last;
    last = one.place;
    auto unit = one.unit.lock();
    if (unit == nullptr) continue;
    bytes += unit->memory().bytes();
    const bool beyond = nodes > one.schedule.depth || (i != next_ && bytes > one.schedule.ahead_bytes);
    found.push_back({i, std::move(unit), one.node});
    if (!beyond && !one.started) continue;
    found.back().index = kNotNow;
    if (beyond) break;
  }
  return found;
}

void FetchAhead::start(const std::vector<Candidate>& candidates) {
  for (const Candidate& one : candidates) {
    if (one.index == kNotNow) continue;
    const Prefetch::Announced announced = one.unit->announce_fetch();
    if (announced == Prefetch::Announced::kNo) continue;
    {
      const base::MutexLock lock(mutex_);
      wanted_[one.index].started = true;
    }
    if (announced == Prefetch::Announced::kToBeRun) Saved::get().fetch(one.unit, one.node);
  }
}

}  // namespace overdrive::hooks
