// One observation of a trace, as its thread leaves it for the writer. Plain values, of one size.
#pragma once

#include <cstdint>

namespace overdrive::inspect {

inline constexpr uint64_t kNoSequence = UINT64_MAX;

struct TraceRecord {
  enum class Kind : uint8_t {
    kNode,
    kForward,
    kBackward,
    kPack,  // from here on: work that is no node, in the order of AuxiliarySpan::Kind
    kUnpack,
    kFetch,
    kRecompute,
    kMicroBatch,
    kStreamWait
  };
  // In the place of a thread: `sequence` is the number of a fetch.
  static constexpr uint64_t kFetches = UINT64_MAX;

  uint64_t begin = 0, end = 0;  // ticks of c10's approximate clock
  uint64_t wait = 0;            // ticks
  uint64_t sequence = kNoSequence;
  uint64_t forward_thread = 0;  // of the operator that made the node
  int64_t bytes_in = 0;         // of a backward: its nodes; of an auxiliary span: the bytes as saved, or -1
  int64_t bytes_out =
      0;              // of a backward: its number; of an auxiliary span: packed bytes or other stream, or -1
  int64_t live = -1;  // bytes; -1: not counted. Of an auxiliary span: its number
  uint32_t name = 0;
  Kind kind = Kind::kNode;
  bool native = false;
  bool failed = false;
  int8_t device = 0, device_index = -1;
};

}  // namespace overdrive::inspect
