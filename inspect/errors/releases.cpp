#include "inspect/errors/releases.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/overdrive_engine.h"
#include "engine/run/watchers.h"

namespace overdrive::inspect {
namespace {

// A table with one entry for each hash: a later release overwrites an earlier one.
class Releases {
 public:
  static Releases& get() {
    static base::NoDestructor<Releases> instance;
    return *instance;
  }
  void add(const base::Node& node, uint64_t backward) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    entries_[index_of(node)] = {&node, node.sequence_nr(), backward};
  }
  // 0: not known.
  uint64_t find(const base::Node& node) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const Entry& entry = entries_[index_of(node)];
    return entry.node == &node && entry.sequence_nr == node.sequence_nr() ? entry.backward : 0;
  }

 private:
  struct Entry {
    const base::Node* node = nullptr;  // never read through
    uint64_t sequence_nr = 0;
    uint64_t backward = 0;
  };
  static constexpr size_t kEntries = size_t{1} << 16;
  static size_t index_of(const base::Node& node) {
    return (reinterpret_cast<uintptr_t>(&node) >> 4) * 0x9E3779B97F4A7C15ull >> 48;
  }

  base::ProcessMutex mutex_{"releases"};
  std::vector<Entry> entries_ OVERDRIVE_GUARDED_BY(mutex_) = std::vector<Entry>(kEntries);
};

class RecordReleases final : public engine::RunWatch {
 public:
  explicit RecordReleases(uint64_t backward) : backward_(backward) {}
  void after_node(const engine::NodeFacts& facts, const base::variable_list&, bool) override {
    Releases::get().add(facts.node, backward_);
  }

 private:
  const uint64_t backward_;
};

class ReleaseWatcher final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    const bool records = engine::OverdriveEngine::get().options().errors == engine::Errors::kFull;
    return records && !facts.keep_graph ? std::make_unique<RecordReleases>(facts.number) : nullptr;
  }
};

}  // namespace

void record_releases() {
  [[maybe_unused]] static const bool kAdded = (engine::add_watcher(std::make_shared<ReleaseWatcher>()), true);
}

std::string release_of(const base::Node& node) {
  const uint64_t backward = Releases::get().find(node);
  return backward == 0 ? "" : c10::str("backward ", backward, " of the process, which did not keep the graph");
}

}  // namespace overdrive::inspect
