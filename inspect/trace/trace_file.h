// The file of one trace, and the records on their way to it. The scope and the backwards that it watches own it
// together. Any thread pushes records into its own ring; a thread of the file formats and writes them. The file
// on the disk is whole JSON after every write. Knows nothing of nodes.
#pragma once

#include "engine/base/job_thread.h"
#include "engine/base/mutex.h"
#include "inspect/trace/event_text.h"
#include "inspect/trace/record_ring.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::inspect {

class TraceFile {
 public:
  // `source` begins the error, such as "OVERDRIVE_TRACE". "%p" in `path` becomes the number of the process.
  // Throws c10::Error when the file cannot be written.
  TraceFile(const char* source, std::string path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Of the calling thread.
  RecordRing& ring();
  // Waits where the thread is a whole ring ahead of the disk.
  void push(RecordRing& ring, const TraceRecord& record);
  uint32_t name_number(RecordRing& ring, const std::string& name);
  // Whether the trace had begun at a moment in ticks.
  bool began_before(uint64_t moment) const { return begun_ <= moment; }
  // Has pushed records written soon, unless a call asked for that a short time ago. `now`: in ticks.
  void flush_now_and_then(uint64_t now);

  // Writes what is left and ends the file; later records are dropped. The error of the disk, "" when there is
  // none.
  std::string finish();

 private:
  RecordRing& add_ring() OVERDRIVE_EXCLUDES(mutex_);
  void ask_for_drain();
  void drain() OVERDRIVE_EXCLUDES(drain_mutex_);
  void drain_lanes() OVERDRIVE_REQUIRES(drain_mutex_);
  void write(const std::string& text) OVERDRIVE_REQUIRES(drain_mutex_);

  // Fixed.
  const std::string path_;
  const int64_t process_;
  const uint64_t serial_;
  const uint64_t begun_;  // ticks
  int file_ = -1;

  std::atomic<bool> closed_{false};
  std::atomic<bool> drain_asked_{false};
  std::atomic<uint64_t> last_flush_{0};

  base::Mutex mutex_;
  std::vector<std::unique_ptr<RecordRing>> rings_ OVERDRIVE_GUARDED_BY(mutex_);
  std::deque<std::string> names_ OVERDRIVE_GUARDED_BY(mutex_);  // as JSON text; elements stay where they are

  base::Mutex drain_mutex_;
  EventText text_ OVERDRIVE_GUARDED_BY(drain_mutex_);
  std::string pending_ OVERDRIVE_GUARDED_BY(drain_mutex_);
  std::vector<const std::string*> known_names_ OVERDRIVE_GUARDED_BY(drain_mutex_);
  std::map<uint64_t, Sequences> traced_ OVERDRIVE_GUARDED_BY(drain_mutex_);  // by forward thread
  size_t rings_named_ OVERDRIVE_GUARDED_BY(drain_mutex_) = 0;
  int64_t written_ OVERDRIVE_GUARDED_BY(drain_mutex_) = 0;  // bytes, without the end
  int error_ OVERDRIVE_GUARDED_BY(drain_mutex_) = 0;        // errno of the first write that failed

  std::optional<base::JobThread> writer_;  // its last jobs end before the fields above
};

}  // namespace overdrive::inspect
