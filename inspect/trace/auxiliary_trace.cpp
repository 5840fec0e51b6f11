#include "inspect/trace/auxiliary_trace.h"

#include "engine/base/auxiliary_span.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace overdrive::inspect {
namespace {

using base::AuxiliarySpan;
using Files = std::vector<std::shared_ptr<TraceFile>>;

// Never destroyed, because a thread may end its work after the last trace.
struct OpenTraces {
  base::ProcessMutex mutex{"open traces"};
  Files files OVERDRIVE_GUARDED_BY(mutex);
};

OpenTraces& open_traces() {
  static base::NoDestructor<OpenTraces> instance;
  return *instance;
}

TraceRecord record_of(const AuxiliarySpan& work) {
  constexpr auto kFirst = static_cast<uint8_t>(TraceRecord::Kind::kPack);
  return {.begin = work.begin,
          .end = work.end,
          .sequence = work.link != 0 ? work.link : kNoSequence,
          .forward_thread = TraceRecord::kFetches,
          .bytes_in = work.bytes,
          .bytes_out = work.kind == AuxiliarySpan::Kind::kStreamWait ? work.other : work.packed,
          .live = work.number,
          .kind = static_cast<TraceRecord::Kind>(kFirst + static_cast<uint8_t>(work.kind)),
          .failed = work.failed,
          .device = work.device,
          .device_index = work.device_index};
}

void write(const AuxiliarySpan& work) noexcept {
  try {
    Files files;
    {
      OpenTraces& open = open_traces();
      const base::MutexLock lock(open.mutex);
      files = open.files;
    }
    TraceRecord record = record_of(work);
    for (const auto& file : files) {
      if (!file->began_before(work.begin)) continue;
      RecordRing& ring = file->ring();
      record.name = file->name_number(ring, work.name);
      file->push(ring, record);
    }
  } catch (...) {  // memory: the work itself is done
  }
}

}  // namespace

SideTrace::SideTrace(std::shared_ptr<TraceFile> file) : file_(std::move(file)) {
  OpenTraces& open = open_traces();
  const base::MutexLock lock(open.mutex);
  open.files.push_back(file_);
  base::auxiliary_span_listener.store(&write, std::memory_order_release);
}

SideTrace::~SideTrace() {
  OpenTraces& open = open_traces();
  const base::MutexLock lock(open.mutex);
  open.files.erase(std::find(open.files.begin(), open.files.end(), file_));
  if (open.files.empty()) base::auxiliary_span_listener.store(nullptr, std::memory_order_release);
}

}  // namespace overdrive::inspect
