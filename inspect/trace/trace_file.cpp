#include "inspect/trace/trace_file.h"

#include "engine/base/json_text.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace overdrive::inspect {
namespace {

constexpr std::string_view kEnd = "\n]}\n";
constexpr size_t kWriteAtOnce = size_t{1} << 18;
constexpr uint32_t kMostNames = 1 << 16;

std::string with_process(std::string path) {
  const size_t at = path.find("%p");
  if (at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

// In a folder that others may write, a link or a file of another user may wait under the name.
int open_for_writing(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // stat() and fstat() are functions of glibc 2.33; the library works with older ones.
  struct statx about {};
  const bool shared =
      statx(AT_FDCWD, folder.c_str(), 0, STATX_MODE, &about) == 0 && (about.stx_mode & S_IWOTH) != 0;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (shared ? O_NOFOLLOW : 0), 0666);
  if (file < 0) return file;
  const bool known = statx(file, "", AT_EMPTY_PATH, STATX_TYPE | STATX_UID, &about) == 0;
  if (known && (!shared || about.stx_uid == geteuid()) && (!S_ISREG(about.stx_mode) || ftruncate(file, 0) == 0))
    return file;
  close(file);
  if (known && shared) errno = EPERM;
  return -1;
}

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

// The rings that this thread used last, by the serial number of their file. A number is never used twice, so an
// entry of a file that is gone is found by nobody.
struct RecentRings {
  struct Entry {
    uint64_t file = 0;
    RecordRing* ring = nullptr;
  };
  Entry entries[4];
  unsigned next = 0;
};
thread_local RecentRings recent_rings;

std::string name_of_thread(pthread_t thread) {
  char name[32] = "";
  pthread_getname_np(thread, name, sizeof name);
  return base::json_text(name);
}

}  // namespace

TraceFile::TraceFile(const char* source, std::string path)
    : path_(with_process(std::move(path))),
      process_(getpid()),
      serial_(next_serial()),
      begun_(static_cast<uint64_t>(c10::getApproximateTime())),
      text_(process_) {
  file_ = open_for_writing(path_);
  const bool seekable = file_ >= 0 && lseek(file_, 0, SEEK_CUR) >= 0;
  const int error = errno;
  if (!seekable && file_ >= 0) close(file_);
  TORCH_CHECK(seekable, source, " is \"", path_,
              "\", but must be a file that can be written: ", std::strerror(error), ".");
  {
    const base::MutexLock lock(drain_mutex_);
    pending_ = c10::str("{\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":", text_.scale.unix_nanoseconds(),
                        ",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":", process_,
                        ",\"name\":\"process_name\",\"args\":{\"name\":\"Overdrive\"}}");
    write(std::exchange(pending_, {}));
    const int first_error = error_;
    if (first_error != 0) close(file_);
    TORCH_CHECK(first_error == 0, source, " is \"", path_,
                "\", but must be a file that can be written: ", std::strerror(first_error), ".");
  }
  writer_.emplace("od-trace");
}

TraceFile::~TraceFile() { finish(); }

RecordRing& TraceFile::ring() {
  for (const auto& entry : recent_rings.entries) {
    if (entry.file == serial_) return *entry.ring;
  }
  return add_ring();
}

RecordRing& TraceFile::add_ring() {
  RecordRing* found = nullptr;
  const auto thread = static_cast<int64_t>(syscall(SYS_gettid));  // gettid() is a function of glibc 2.30
  {
    const base::MutexLock lock(mutex_);
    for (const auto& ring : rings_) {
      if (ring->thread == thread) found = ring.get();  // also of a thread that is gone, whose number came again
    }
    if (found == nullptr) {
      rings_.push_back(std::make_unique<RecordRing>(thread, name_of_thread(pthread_self())));
      found = rings_.back().get();
    }
  }
  recent_rings.entries[recent_rings.next++ % 4] = {serial_, found};
  return *found;
}

void TraceFile::push(RecordRing& ring, const TraceRecord& record) {
  while (!ring.has_room()) {
    if (closed_.load(std::memory_order_relaxed) || getpid() != process_) return;  // nobody would make room
    ask_for_drain();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (ring.push(record) % (RecordRing::kRecords / 8) == 0) ask_for_drain();
}

uint32_t TraceFile::name_number(RecordRing& ring, const std::string& name) {
  const auto known = ring.names.find(name);
  if (known != ring.names.end()) return known->second;
  uint32_t number = 0;
  {
    const base::MutexLock lock(mutex_);
    if (names_.size() + 1 < kMostNames) {
      names_.push_back(base::json_text(std::string_view(name).substr(0, 400)));
    } else if (names_.size() < kMostNames) {
      names_.push_back("(one of many names)");
    }
    number = static_cast<uint32_t>(names_.size()) - 1;
  }
  if (ring.names.size() < kMostNames) ring.names.emplace(name, number);
  return number;
}

void TraceFile::flush_now_and_then(uint64_t now) {
  constexpr uint64_t kShortTime = 100'000'000;  // ticks: a tenth of a second, or less
  if (now - last_flush_.load(std::memory_order_relaxed) < kShortTime) return;
  last_flush_.store(now, std::memory_order_relaxed);
  ask_for_drain();
}

void TraceFile::ask_for_drain() {
  if (closed_.load(std::memory_order_relaxed) || drain_asked_.exchange(true) || getpid() != process_) return;
  writer_->push([this] {
    drain_asked_.store(false);
    drain();
  });
}

void TraceFile::drain() {
  const base::MutexLock lock(drain_mutex_);
  try {
    text_.scale.settle();
    drain_lanes();
    write(std::exchange(pending_, {}));
  } catch (const std::bad_alloc&) {  // the file stays whole up to here, and finish() tells
    if (error_ == 0) error_ = ENOMEM;
    pending_.clear();
  }
}

// The heads are read before the forward operators are looked for. So an operator is known when a node that was
// pushed after the operator is written, from whichever thread.
void TraceFile::drain_lanes() {
  std::vector<RecordRing*> rings;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& ring : rings_) rings.push_back(ring.get());
  }
  std::vector<uint64_t> heads;
  for (const RecordRing* ring : rings) heads.push_back(ring->head());
  {
    const base::MutexLock lock(mutex_);
    for (size_t i = known_names_.size(); i < names_.size(); ++i) known_names_.push_back(&names_[i]);
    for (size_t i = rings.size(); i < rings_.size(); ++i) {
      rings.push_back(rings_[i].get());
      heads.push_back(0);
    }
  }
  for (RecordRing* ring : rings) {
    const uint64_t head = ring->head();
    for (uint64_t at = ring->looked_at; at < head; ++at) {
      const TraceRecord& record = (*ring)[at];
      const bool begins_arrow =
          record.kind == TraceRecord::Kind::kForward || record.kind == TraceRecord::Kind::kFetch;
      if (begins_arrow && record.sequence != kNoSequence) {
        traced_[record.forward_thread].add(record.sequence);
      }
    }
    ring->looked_at = head;
  }
  for (; rings_named_ < rings.size(); ++rings_named_) {
    text_.thread_name(pending_, rings[rings_named_]->thread, rings[rings_named_]->thread_name);
  }
  for (size_t i = 0; i < rings.size(); ++i) {
    RecordRing& ring = *rings[i];
    for (uint64_t at = ring.tail(); at < heads[i]; ++at) {
      const TraceRecord& record = ring[at];
      bool has_arrow = false;
      if (record.sequence != kNoSequence && record.kind != TraceRecord::Kind::kBackward) {
        const auto traced = traced_.find(record.forward_thread);
        has_arrow = traced != traced_.end() && traced->second.has(record.sequence);
      }
      text_.event(pending_, record, *known_names_[record.name], ring.thread, has_arrow);
      if (pending_.size() < kWriteAtOnce) continue;
      ring.drained_to(at + 1);
      write(pending_);
      pending_.clear();
    }
    ring.drained_to(heads[i]);
  }
}

// The end is written every time, and the next text takes its place. So the file is whole whenever the process
// ends.
void TraceFile::write(const std::string& text) {
  if (getpid() != process_ || error_ != 0) return;
  const std::string whole = text + std::string(kEnd);
  for (size_t done = 0; done < whole.size();) {
    const ssize_t now =
        pwrite(file_, whole.data() + done, whole.size() - done, written_ + static_cast<off_t>(done));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) {
      error_ = now < 0 ? errno : EIO;
      // Ends the file after the last event that is there as a whole.
      if (ftruncate(file_, written_) == 0 && pwrite(file_, kEnd.data(), kEnd.size(), written_) < 0) return;
      return;
    }
    done += static_cast<size_t>(now);
  }
  written_ += static_cast<int64_t>(text.size());
}

std::string TraceFile::finish() {
  // A child of fork() has no writer, and the file is its parent's.
  if (closed_.exchange(true) || getpid() != process_) return "";
  writer_.reset();
  drain();
  const base::MutexLock lock(drain_mutex_);
  close(file_);
  return error_ == 0 ? "" : c10::str("\"", path_, "\": ", std::strerror(error_));
}

}  // namespace overdrive::inspect
