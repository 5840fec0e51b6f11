#include "inspect/cost/allocation_log.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <utility>

namespace overdrive::inspect {
namespace {

// Never destroyed, because another thread may allocate while a log ends.
struct Written {
  base::ProcessMutex mutex{"allocation log"};
  bool on OVERDRIVE_GUARDED_BY(mutex) = false;
  bool (*marked)() OVERDRIVE_GUARDED_BY(mutex) = nullptr;
  uint32_t mark OVERDRIVE_GUARDED_BY(mutex) = 0;
  std::vector<Allocation> list OVERDRIVE_GUARDED_BY(mutex);
};

Written& written() {
  static base::NoDestructor<Written> instance;
  return *instance;
}

thread_local uint32_t current_owner = 0;

}  // namespace

Peak peak_of(const std::vector<Allocation>& allocations) {
  Peak peak;
  replay(allocations, allocations.size(), [&](size_t i, uint32_t, int64_t, int64_t alive) {
    if (alive <= peak.bytes) return;
    peak.bytes = alive;
    peak.at = i;
    peak.none = false;
  });
  if (peak.none) return peak;
  replay(allocations, peak.at + 1, [&](size_t, uint32_t owner, int64_t bytes, int64_t) {
    Peak::Share& share = peak.owners[owner];
    share.bytes += bytes;
    share.tensors += bytes > 0 ? 1 : uint64_t(-1);
  });
  return peak;
}

AllocationLog::AllocationLog(bool (*marked)(), uint32_t mark) {
  Written& all = written();
  const base::MutexLock lock(all.mutex);
  TORCH_CHECK(!all.on,
              "profile() and memory_timeline() measure one step at a time in a process; another is under way.");
  all.on = true;
  all.marked = marked;
  all.mark = mark;
  LiveBytes::set_listener([](const void* memory, int64_t bytes) noexcept {
    try {
      Written& now = written();
      const base::MutexLock note(now.mutex);
      if (!now.on) return;
      const uint32_t mark_now = now.marked != nullptr && now.marked() ? now.mark : 0;
      now.list.push_back(
          {memory, bytes, current_owner | mark_now, static_cast<uint64_t>(c10::getApproximateTime())});
    } catch (...) {  // no memory for the log: the allocation itself succeeded
    }
  });
}

AllocationLog::~AllocationLog() {
  LiveBytes::set_listener(nullptr);
  take();
  Written& all = written();
  const base::MutexLock lock(all.mutex);
  all.on = false;
}

uint32_t& AllocationLog::owner() { return current_owner; }

std::vector<Allocation> AllocationLog::take() {
  std::vector<Allocation> list;
  Written& all = written();
  const base::MutexLock lock(all.mutex);
  list.swap(all.list);
  return list;
}

}  // namespace overdrive::inspect
