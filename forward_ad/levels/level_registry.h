// The levels that are open, in the process and on this thread. One registry a process, never destroyed, because
// tensors that die while the process exits still leave their levels. Any thread. An index is never used twice,
// so a stale index is always noticed. Leaves layers to the LevelLayer of a level.
//
// Every thread may look up an open level. A level is active only on the thread that opened it and on threads
// that entered it (LevelScope). Each thread has a list of its active levels, outermost first, and opens and
// releases at its end.
#pragma once

#include "engine/base/export.h"
#include "forward_ad/levels/level.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::forward_ad {

class OVERDRIVE_API LevelRegistry {
 public:
  // Opens a level on this thread, inside the levels that are active here.
  static uint64_t get_next_idx();

  // Closes the innermost level of this thread: drops the tangents registered with it and takes its layer away.
  // Any other level is an error that lists the open levels.
  static void release_idx(uint64_t idx);

  // An error when the level is not open.
  static std::shared_ptr<ForwardADLevel> get_by_idx(uint64_t idx);
  // Null when the level is not open.
  static std::shared_ptr<ForwardADLevel> try_get_by_idx(uint64_t idx);

  // Open levels of the whole process.
  static size_t open_count();
  static std::vector<uint64_t> open_levels();
};

// The levels active on this thread, outermost first.
OVERDRIVE_API const std::vector<uint64_t>& active_levels();
OVERDRIVE_API bool is_active_here(uint64_t idx);
OVERDRIVE_API void set_active_levels(std::vector<uint64_t> levels);

// "[3, 4]" or "none", for messages.
OVERDRIVE_API std::string active_levels_text();

// Puts a list of active levels on this thread. The destructor restores the old list.
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
