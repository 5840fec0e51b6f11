#include "engine/run/watchers.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <algorithm>
#include <utility>

namespace overdrive::engine {
namespace {

using List = std::vector<std::shared_ptr<Watcher>>;

struct Registry {
  static Registry& get() {
    static base::NoDestructor<Registry> instance;
    return *instance;
  }

  base::ProcessMutex mutex{"watchers"};
  List list OVERDRIVE_GUARDED_BY(mutex);
};

List current_watchers() {
  Registry& all = Registry::get();
  const base::MutexLock lock(all.mutex);
  return all.list;
}

}  // namespace

std::atomic<int> num_watchers{0};

void add_watcher(std::shared_ptr<Watcher> watcher) {
  Registry& all = Registry::get();
  const base::MutexLock lock(all.mutex);
  all.list.push_back(std::move(watcher));
  num_watchers.fetch_add(1, std::memory_order_relaxed);
}

void remove_watcher(const Watcher& watcher) {
  std::shared_ptr<Watcher> removed;  // destroyed outside the lock
  Registry& all = Registry::get();
  const base::MutexLock lock(all.mutex);
  const auto at = std::find_if(all.list.begin(), all.list.end(),
                               [&](const std::shared_ptr<Watcher>& one) { return one.get() == &watcher; });
  if (at == all.list.end()) return;
  removed = std::move(*at);
  all.list.erase(at);
  num_watchers.fetch_sub(1, std::memory_order_relaxed);
}

WatchedRun::WatchedRun(RunFacts facts) {
  static std::atomic<uint64_t> numbers{0};
  facts.number = numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  try {
    for (const std::shared_ptr<Watcher>& watcher : current_watchers()) {
      std::unique_ptr<RunWatch> watch = watcher->watch(facts);
      if (watch == nullptr) continue;
      watches_.push_back(std::move(watch));
      runs_user_code_ |= watcher->runs_user_code();
    }
  } catch (...) {
    end(std::current_exception());
    throw;
  }
}

void WatchedRun::may_go_on(uint32_t node) {
  for (const auto& watch : watches_) watch->may_go_on(node);
  if (observer_ != nullptr) observer_->may_go_on(node);
}

void WatchedRun::end(const std::exception_ptr& error) {
  std::exception_ptr first = error;
  while (!watches_.empty()) {
    const std::unique_ptr<RunWatch> last = std::move(watches_.back());
    watches_.pop_back();
    try {
      last->end(first);
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (error == nullptr && first != nullptr) std::rethrow_exception(first);
}

}  // namespace overdrive::engine
