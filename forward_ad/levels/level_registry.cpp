#include "forward_ad/levels/level_registry.h"

#include "engine/base/no_destructor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace overdrive::forward_ad {

namespace {

thread_local std::vector<uint64_t> tls_active;

std::atomic<LevelRegistry*> test_registry{nullptr};

std::string text(const std::vector<uint64_t>& levels) {
  if (levels.empty()) return "none";
  std::string out = "[";
  for (uint64_t level : levels) out += (out.size() > 1 ? ", " : "") + std::to_string(level);
  return out + "]";
}

}  // namespace

LevelRegistry::~LevelRegistry() = default;

uint64_t LevelRegistry::get_next_idx() {
  uint64_t idx = 0;
  {
    base::MutexLock lock(mutex_);
    idx = next_idx_++;
    open_.emplace(idx, Entry{std::make_shared<ForwardADLevel>(idx), std::this_thread::get_id()});
  }
  tls_active.push_back(idx);
  return idx;
}

LevelRegistry::Entry LevelRegistry::check_innermost(uint64_t idx) const {
  Entry entry;
  {
    base::MutexLock lock(mutex_);
    auto found = open_.find(idx);
    if (found != open_.end()) entry = found->second;
  }
  TORCH_CHECK(entry.level, "Cannot release forward AD level ", idx,
              ": it is not open. Levels open on this thread: ", active_levels_text(), ".");
  TORCH_CHECK(entry.opener == std::this_thread::get_id(), "Cannot release forward AD level ", idx,
              ": another thread opened it, and that thread releases it. Levels open on this thread: ",
              active_levels_text(), ".");
  TORCH_CHECK(!tls_active.empty() && tls_active.back() == idx, "Cannot release forward AD level ", idx,
              " now: levels are released in the reverse order of opening. Levels open on this thread: ",
              active_levels_text(), ".");
  return entry;
}

void LevelRegistry::release_idx(uint64_t idx) {
  Entry entry = check_innermost(idx);
  if (auto* layer = entry.level->layer()) layer->check_can_leave();
  {
    base::MutexLock lock(mutex_);
    open_.erase(idx);
  }
  tls_active.pop_back();
  entry.level->release();
  if (auto* layer = entry.level->layer()) layer->leave();
}

std::shared_ptr<ForwardADLevel> LevelRegistry::get_by_idx(uint64_t idx) {
  auto level = try_get_by_idx(idx);
  TORCH_CHECK(level, "Forward AD level ", idx,
              " is not open: it was released, or never opened. Levels open on this thread: ",
              active_levels_text(), "; in the process: ", text(open_levels()), ".");
  return level;
}

std::shared_ptr<ForwardADLevel> LevelRegistry::try_get_by_idx(uint64_t idx) {
  base::MutexLock lock(mutex_);
  auto found = open_.find(idx);
  return found == open_.end() ? nullptr : found->second.level;
}

size_t LevelRegistry::open_count() const {
  base::MutexLock lock(mutex_);
  return open_.size();
}

std::vector<uint64_t> LevelRegistry::open_levels() const {
  std::vector<uint64_t> levels;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [idx, entry] : open_) levels.push_back(idx);
  }
  std::sort(levels.begin(), levels.end());
  return levels;
}

LevelRegistry& LevelRegistry::current() {
  // Never destroyed: tensors that die while the process exits still leave their levels.
  static base::NoDestructor<LevelRegistry> registry;
  auto* replaced = test_registry.load(std::memory_order_acquire);
  return replaced != nullptr ? *replaced : *registry;
}

LevelRegistry* LevelRegistry::exchange(LevelRegistry* registry) { return test_registry.exchange(registry); }

const std::vector<uint64_t>& active_levels() { return tls_active; }

bool is_active_here(uint64_t idx) {
  return std::find(tls_active.rbegin(), tls_active.rend(), idx) != tls_active.rend();
}

void set_active_levels(std::vector<uint64_t> levels) { tls_active = std::move(levels); }

std::string active_levels_text() { return text(tls_active); }

ActiveLevels::ActiveLevels(std::vector<uint64_t> levels)
    : outer_(std::exchange(tls_active, std::move(levels))) {}

ActiveLevels::~ActiveLevels() { tls_active = std::move(outer_); }

}  // namespace overdrive::forward_ad
