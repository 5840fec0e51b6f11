// The watchers of backwards: a small list of the process, which higher folders fill. Any thread may add, remove
// and begin backwards at once. A backward under way keeps the watches that it began with, so what a RunWatch
// needs must not die with the scope that added its watcher. Without a watcher a backward pays one comparison.
#pragma once

#include "engine/node/run_watch.h"

#include <atomic>
#include <memory>
#include <utility>

namespace overdrive::engine {

class Watcher {
 public:
  virtual ~Watcher() = default;
  // On the thread that begins the backward. Null: this backward is not followed.
  virtual std::unique_ptr<RunWatch> watch(const RunFacts& facts) = 0;
  // Code of the program runs in the calls, so it must find stock's surroundings there.
  virtual bool runs_user_code() const { return false; }
};

void add_watcher(std::shared_ptr<Watcher> watcher);
void remove_watcher(const Watcher& watcher);

class WatcherScope {
 public:
  explicit WatcherScope(std::shared_ptr<Watcher> watcher) : watcher_(*watcher) {
    add_watcher(std::move(watcher));
  }
  ~WatcherScope() { remove_watcher(watcher_); }
  WatcherScope(const WatcherScope&) = delete;
  WatcherScope& operator=(const WatcherScope&) = delete;

 private:
  const Watcher& watcher_;  // the list keeps it
};

extern std::atomic<int> num_watchers;
inline bool has_watchers() { return num_watchers.load(std::memory_order_relaxed) != 0; }

// The watches of one backward. Lives on the stack of the calling thread, around the run.
class WatchedRun final : public RunWatch {
 public:
  // Asks every watcher, with a number for the backward. When one throws, those before it hear of the end.
  explicit WatchedRun(RunFacts facts);
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

  bool runs_user_code() const { return runs_user_code_; }
  const RunWatches* watches() const { return watches_.empty() ? nullptr : &watches_; }
  // The observer that fetches ahead, or null, becomes a part of this one.
  void set_observer(RunWatch* observer) { observer_ = observer; }
  void may_go_on(uint32_t node) override;
  void end(const std::exception_ptr& error) override;

 private:
  RunWatches watches_;
  RunWatch* observer_ = nullptr;
  bool runs_user_code_ = false;
};

}  // namespace overdrive::engine
