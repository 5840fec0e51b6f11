// Which levels are open, in the process and on this thread. One per process, never
// destroyed; a test may put another in its place. Any thread. An index is never used
// twice, so a stale one is always noticed. Does not know what a layer is.
//
// Known and active: every thread may look up an open level, but it is active only on
// the thread that opened it and on those that entered it (LevelScope). Each thread has
// a list of its active levels, outermost first; a thread opens and releases at the end
// of its own list.
#pragma once

#include "engine/base/export.h"
#include "engine/base/mutex.h"
#include "forward_ad/levels/level.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace overdrive::forward_ad {

class OVERDRIVE_API LevelRegistry {
 public:
  LevelRegistry() = default;
  virtual ~LevelRegistry();
  LevelRegistry(const LevelRegistry&) = delete;
  LevelRegistry& operator=(const LevelRegistry&) = delete;

  // Opens a level on this thread, inside those that are active here.
  virtual uint64_t get_next_idx() OVERDRIVE_EXCLUDES(mutex_);

  // Closes the innermost level of this thread: drops the tangents registered with it
  // and takes its layer away. Any other level is an error that says what is open.
  virtual void release_idx(uint64_t idx) OVERDRIVE_EXCLUDES(mutex_);

  // An error when the level is not open.
  virtual std::shared_ptr<ForwardADLevel> get_by_idx(uint64_t idx) OVERDRIVE_EXCLUDES(mutex_);
  // Null when the level is not open.
  virtual std::shared_ptr<ForwardADLevel> try_get_by_idx(uint64_t idx) OVERDRIVE_EXCLUDES(mutex_);

  // Open levels of the whole process.
  size_t open_count() const OVERDRIVE_EXCLUDES(mutex_);
  std::vector<uint64_t> open_levels() const OVERDRIVE_EXCLUDES(mutex_);

  // The registry in use, and a way for tests to put another in its place; gives back
  // the one that was there. Null means the process's own.
  static LevelRegistry& current();
  static LevelRegistry* exchange(LevelRegistry* registry);

 private:
  struct Entry {
    std::shared_ptr<ForwardADLevel> level;
    std::thread::id opener;
  };
  Entry check_innermost(uint64_t idx) const OVERDRIVE_EXCLUDES(mutex_);

  mutable base::Mutex mutex_;
  uint64_t next_idx_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Entry> open_ OVERDRIVE_GUARDED_BY(mutex_);
};

// The levels active on this thread, outermost first.
OVERDRIVE_API const std::vector<uint64_t>& active_levels();
OVERDRIVE_API bool is_active_here(uint64_t idx);
OVERDRIVE_API void set_active_levels(std::vector<uint64_t> levels);

// "[3, 4]" or "none", for messages.
OVERDRIVE_API std::string active_levels_text();

// Puts a list of active levels on this thread; the old one comes back in the destructor.
class OVERDRIVE_API ActiveLevels {
 public:
  explicit ActiveLevels(std::vector<uint64_t> levels);
  ~ActiveLevels();
  ActiveLevels(const ActiveLevels&) = delete;
  ActiveLevels& operator=(const ActiveLevels&) = delete;

 private:
  std::vector<uint64_t> outer_;
};

}  // namespace overdrive::forward_ad
