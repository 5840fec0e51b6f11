#include "forward_ad/levels/level_registry.h"

#include "engine/base/no_destructor.h"
#include "engine/base/of_thread.h"
#include "engine/base/process_mutex.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

namespace overdrive::forward_ad {
namespace {
struct LevelsOfThread {
  std::vector<uint64_t> active;
};
std::vector<uint64_t>& active_here() { return base::OfThread<LevelsOfThread>::get().active; }

struct Entry {
  std::shared_ptr<ForwardADLevel> level;
  std::thread::id opener;
};

struct Registry {
  base::ProcessMutex mutex{"forward-mode levels"};
  uint64_t next_idx OVERDRIVE_GUARDED_BY(mutex) = 0;
  std::map<uint64_t, Entry> open OVERDRIVE_GUARDED_BY(mutex);
};

Registry& registry() {
  static base::NoDestructor<Registry> instance;
  return *instance;
}

// An entry without a level when the index is not open.
Entry find(uint64_t idx) {
  Registry& levels = registry();
  base::MutexLock lock(levels.mutex);
  auto found = levels.open.find(idx);
  return found == levels.open.end() ? Entry{} : found->second;
}

std::string text(const std::vector<uint64_t>& levels) {
  if (levels.empty()) return "none";
  std::string out = "[";
  for (uint64_t level : levels) out += (out.size() > 1 ? ", " : "") + std::to_string(level);
  return out + "]";
}

Entry check_innermost(uint64_t idx) {
  Entry entry = find(idx);
  TORCH_CHECK(entry.level, "Cannot release forward AD level ", idx,
              ": it is not open. Levels open on this thread: ", active_levels_text(), ".");
  TORCH_CHECK(entry.opener == std::this_thread::get_id(), "Cannot release forward AD level ", idx,
              ": another thread opened it, and that thread releases it. Levels open on this thread: ",
              active_levels_text(), ".");
  const std::vector<uint64_t>& active = active_here();
  TORCH_CHECK(!active.empty() && active.back() == idx, "Cannot release forward AD level ", idx,
              " now: levels are released in the reverse order of opening. Levels open on this thread: ",
              active_levels_text(), ".");
  return entry;
}

}  // namespace

uint64_t LevelRegistry::get_next_idx() {
  Registry& levels = registry();
  std::vector<uint64_t>& active = active_here();
  active.reserve(active.size() + 1);  // an entry that nobody can release must not stay
  uint64_t idx = 0;
  {
    base::MutexLock lock(levels.mutex);
    idx = levels.next_idx++;
    levels.open.emplace(idx, Entry{std::make_shared<ForwardADLevel>(idx), std::this_thread::get_id()});
  }
  active.push_back(idx);
  return idx;
}

void LevelRegistry::release_idx(uint64_t idx) {
  Entry entry = check_innermost(idx);
  LevelLayer* layer = entry.level->layer();
  if (layer != nullptr) layer->check_can_leave();
  {
    Registry& levels = registry();
    base::MutexLock lock(levels.mutex);
    levels.open.erase(idx);
  }
  active_here().pop_back();
  entry.level->release();
  if (layer != nullptr) layer->leave();
}

std::shared_ptr<ForwardADLevel> LevelRegistry::get_by_idx(uint64_t idx) {
  auto level = try_get_by_idx(idx);
  TORCH_CHECK(level, "Forward AD level ", idx,
              " is not open: it was released, or never opened. Levels open on this thread: ",
              active_levels_text(), "; in the process: ", text(open_levels()), ".");
  return level;
}

std::shared_ptr<ForwardADLevel> LevelRegistry::try_get_by_idx(uint64_t idx) { return find(idx).level; }

size_t LevelRegistry::open_count() { return open_levels().size(); }

std::vector<uint64_t> LevelRegistry::open_levels() {
  Registry& levels = registry();
  std::vector<uint64_t> indices;
  base::MutexLock lock(levels.mutex);
  for (const auto& [idx, entry] : levels.open) indices.push_back(idx);
  return indices;
}

const std::vector<uint64_t>& active_levels() { return active_here(); }

bool is_active_here(uint64_t idx) {
  const std::vector<uint64_t>& active = active_here();
  return std::find(active.rbegin(), active.rend(), idx) != active.rend();
}

void set_active_levels(std::vector<uint64_t> levels) { active_here() = std::move(levels); }

std::string active_levels_text() { return text(active_here()); }

ActiveLevels::ActiveLevels(std::vector<uint64_t> levels)
    : outer_(std::exchange(active_here(), std::move(levels))) {}

ActiveLevels::~ActiveLevels() { active_here() = std::move(outer_); }

}  // namespace overdrive::forward_ad
