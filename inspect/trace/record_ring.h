// The records of one thread on their way to a trace's file: a ring that the thread fills and the writer
// empties. Owned by the trace. One thread pushes and one at a time drains, so two atomic numbers are all its
// locking. The ring bounds the memory of a trace: a thread that is a ring ahead of the writer waits.
#pragma once

#include "inspect/trace/record.h"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace overdrive::inspect {

class RecordRing {
 public:
  static constexpr uint64_t kRecords = uint64_t{1} << 16;  // 5 MiB

  RecordRing(int64_t system_thread, std::string name_of_thread)
      : thread(system_thread), thread_name(std::move(name_of_thread)), ring_(new TraceRecord[kRecords]) {}

  // Of the owning thread.
  bool has_room() {
    if (head_.load(std::memory_order_relaxed) - seen_tail_ < kRecords) [[likely]]
      return true;
    seen_tail_ = tail_.load(std::memory_order_acquire);
    return head_.load(std::memory_order_relaxed) - seen_tail_ < kRecords;
  }
  // Only where there is room. Returns how many records the thread has pushed.
  uint64_t push(const TraceRecord& record) {
    const uint64_t at = head_.load(std::memory_order_relaxed);
    ring_[at % kRecords] = record;
    head_.store(at + 1, std::memory_order_release);
    return at + 1;
  }

  // Of the writer.
  uint64_t head() const { return head_.load(std::memory_order_acquire); }
  uint64_t tail() const { return tail_.load(std::memory_order_relaxed); }
  const TraceRecord& operator[](uint64_t at) const { return ring_[at % kRecords]; }
  void drained_to(uint64_t at) { tail_.store(at, std::memory_order_release); }

  const int64_t thread;
  const std::string thread_name;  // as JSON text

  // A node that is running on the thread, and what ends with it.
  struct Open {
    uint64_t backward;
    uint32_t index;
    TraceRecord record;
  };
  std::vector<Open> open;  // of the owning thread

  // Numbers of names by the vtable of the node's type, and by text. Of the owning thread.
  struct KnownType {
    const void* vtable = nullptr;
    uint32_t name = 0;
  };
  std::array<KnownType, 256> types;
  std::unordered_map<std::string, uint32_t> names;

  uint64_t looked_at = 0;  // of the writer: records whose forward operators are known

 private:
  const std::unique_ptr<TraceRecord[]> ring_;
  std::atomic<uint64_t> head_{0};
  uint64_t seen_tail_ = 0;
  alignas(64) std::atomic<uint64_t> tail_{0};
};

}  // namespace overdrive::inspect
