#include "inspect/cost/profile.h"

#include "engine/base/mutex.h"
#include "engine/check_installed.h"
#include "engine/run/watchers.h"
#include "inspect/cost/allocation_log.h"
#include "inspect/cost/gradient_bytes.h"
#include "inspect/cost/printed.h"

#include <algorithm>
#include <chrono>
#include <ostream>
#include <thread>
#include <unordered_map>
#include <utility>

namespace overdrive::inspect {

using Clock = std::chrono::steady_clock;

// The sums of all watched backwards. The scope of profile() and the runs own it together. The number of a type
// is also the owner of what its nodes allocate; 0 is nobody.
class CostSums {
 public:
  // A node that is running, on the stack of its thread.
  struct Open {
    const CostSums* sums;
    uint64_t backward;
    uint32_t index;
    uint32_t owner_before;
    uint32_t type;
    uint64_t sequence_nr;
    Clock::time_point begin;
    double inside = 0;  // seconds of nodes nested in this one
  };
  // Of the calling thread; null when no node runs. A plain pointer: a late tensor's destructor may run a
  // backward after the thread's destructors.
  static std::vector<Open>*& open() {
    static thread_local std::vector<Open>* nodes = nullptr;
    return nodes;
  }

  uint32_t number_of(const base::Node& node) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const auto [at, is_new] = numbers_.try_emplace(node.name(), static_cast<uint32_t>(numbers_.size() + 1));
    if (is_new) {
      result_.types.emplace_back();
      result_.types.back().name = at->first;
    }
    return at->second;
  }

  void add(const Open& node, double seconds, int64_t bytes, bool native) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    Profile::Type& type = result_.types[node.type - 1];
    const double own_seconds = std::max(0.0, seconds - node.inside);
    ++type.count;
    ++result_.nodes;
    type.own_nodes += native;
    type.total_seconds += seconds;
    type.own_seconds += own_seconds;
    type.bytes += bytes;
    std::vector<Profile::Node>& dearest = result_.dearest;
    if (dearest.size() >= kDearest && own_seconds <= dearest.back().own_seconds) return;
    const auto at = std::find_if(dearest.begin(), dearest.end(),
                                 [&](const Profile::Node& other) { return other.own_seconds < own_seconds; });
    dearest.insert(at, {type.name, node.sequence_nr, own_seconds, bytes});
    if (dearest.size() > kDearest) dearest.pop_back();
  }

  void add_backward(int32_t depth, double seconds, double in_nodes) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    ++result_.backwards;
    if (depth != 0) return;
    result_.backward_seconds += seconds;
    result_.engine_seconds += std::max(0.0, seconds - in_nodes);
  }

  Profile take(const std::vector<Allocation>& allocations) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const Peak peak = peak_of(allocations);
    result_.peak_bytes = peak.bytes;
    for (const auto& [owner, share] : peak.owners) {
      if (owner == 0 || owner > result_.types.size()) continue;
      result_.types[owner - 1].peak_share = static_cast<double>(share.bytes) / static_cast<double>(peak.bytes);
    }
    std::sort(result_.types.begin(), result_.types.end(),
              [](const Profile::Type& a, const Profile::Type& b) { return a.own_seconds > b.own_seconds; });
    return std::move(result_);
  }

 private:
  static constexpr size_t kDearest = 10;
  base::Mutex mutex_;
  std::unordered_map<std::string, uint32_t> numbers_ OVERDRIVE_GUARDED_BY(mutex_);
  Profile result_ OVERDRIVE_GUARDED_BY(mutex_);
};

class CostRun final : public engine::RunWatch {
 public:
  CostRun(std::shared_ptr<CostSums> sums, const engine::RunFacts& facts)
      : sums_(std::move(sums)), number_(facts.number), depth_(facts.depth) {}

  void before_node(const engine::NodeFacts& facts) override {
    const uint32_t type = sums_->number_of(facts.node);
    uint32_t& owner = AllocationLog::owner();
    auto*& open = CostSums::open();
    if (open == nullptr) open = new std::vector<CostSums::Open>;
    open->push_back({sums_.get(), number_, facts.index, std::exchange(owner, type), type,
                     facts.node.sequence_nr(), Clock::now()});
  }
  void after_node(const engine::NodeFacts& facts, const base::variable_list& outputs, bool native) override {
    finish(facts.index, bytes_of(outputs), native);
  }
  void node_failed(const engine::NodeFacts& facts) noexcept override {
    try {
      finish(facts.index, 0, false);
    } catch (...) {  // memory: the error of the node matters more
    }
  }
  void end(const std::exception_ptr&) override {
    auto*& open = CostSums::open();
    while (open != nullptr && open->back().sums == sums_.get() && open->back().backward == number_) close(open);
    sums_->add_backward(depth_, seconds_since(begin_), in_nodes_);
  }

 private:
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  static CostSums::Open close(std::vector<CostSums::Open>*& open) {
    const CostSums::Open last = open->back();
    open->pop_back();
    if (open->empty()) delete std::exchange(open, nullptr);
    AllocationLog::owner() = last.owner_before;
    return last;
  }
  void finish(uint32_t index, int64_t bytes, bool native) {
    auto*& open = CostSums::open();
    while (open != nullptr) {
      const CostSums::Open node = close(open);
      if (node.sums != sums_.get() || node.backward != number_ || node.index != index) continue;
      const double seconds = seconds_since(node.begin);
      if (open != nullptr) open->back().inside += seconds;
      if (std::this_thread::get_id() == caller_) in_nodes_ += seconds;
      sums_->add(node, seconds, bytes, native);
      return;
    }
  }

  const std::shared_ptr<CostSums> sums_;
  const uint64_t number_;
  const int32_t depth_;
  const std::thread::id caller_ = std::this_thread::get_id();
  const Clock::time_point begin_ = Clock::now();
  double in_nodes_ = 0;  // of the calling thread, which alone changes it
};

class CostWatcher final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    return std::make_unique<CostRun>(sums, facts);
  }
  const std::shared_ptr<CostSums> sums = std::make_shared<CostSums>();
};

Profile profile(const std::function<void()>& step) {
  engine::check_installed("A profile shows backwards on Overdrive");
  AllocationLog log;
  const auto watcher = std::make_shared<CostWatcher>();
  const engine::WatcherScope scope(watcher);
  const auto begin = Clock::now();
  step();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Profile result = watcher->sums->take(log.take());
  result.seconds = seconds;
  return result;
}

std::ostream& operator<<(std::ostream& out, const Profile& profile) {
  const double inside = profile.backward_seconds;
  out << "step " << time_text(profile.seconds) << ", backward " << time_text(inside) << ", engine itself "
      << time_text(profile.engine_seconds) << " (" << percent(profile.engine_seconds, inside) << ")\n"
      << "backwards " << profile.backwards << ", nodes " << profile.nodes << ", peak of memory "
      << bytes_text(profile.peak_bytes) << "\n\n";
  if (profile.types.empty()) return out << "The step ran no backward.\n";
  out << left("node type", 26) << right("runs", 5) << right("total", 8) << right("own", 8) << right("bytes", 8)
      << right("peak", 5) << "\n";
  for (const Profile::Type& type : profile.types) {
    const char* const star = type.own_nodes == type.count ? "*" : "";
    out << left(short_name(type.name) + star, 26) << right(count_text(type.count), 5)
        << right(time_text(type.total_seconds), 8) << right(time_text(type.own_seconds), 8)
        << right(bytes_text(type.bytes), 8) << right(percent(type.peak_share, 1), 5) << "\n";
  }
  out << "* run by Overdrive itself\n\n"
      << left("dearest nodes", 32) << right("number", 12) << right("own", 8) << right("bytes", 8) << "\n";
  for (const Profile::Node& node : profile.dearest) {
    const std::string number = node.sequence_nr == UINT64_MAX ? "leaf" : std::to_string(node.sequence_nr);
    out << left(short_name(node.name), 32) << right(number, 12) << right(time_text(node.own_seconds), 8)
        << right(bytes_text(node.bytes), 8) << "\n";
  }
  return out;
}

}  // namespace overdrive::inspect
