// The CPU memory of one step over its time: memory_timeline() runs the step once and says how high the peak is,
// where in the step, and who owns it. One at a time in the process. Operators are those of the calling thread,
// nodes those of every thread. Does not see tensors that were alive before the step, such as parameters.
#pragma once

#include "engine/base/export.h"
#include "inspect/cost/memory_kind.h"

#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <numeric>
#include <string>
#include <vector>

namespace overdrive::inspect {

struct MemoryTimeline {  // What memory_timeline() returns.
  // The memory of one operator or one type of node that is alive at the peak.
  struct Owner {
    MemoryKind kind;
    std::string name;
    int64_t bytes = 0;
    uint64_t tensors = 0;
  };
  struct Point {                                // The memory at one moment.
    double seconds = 0;                         // since the step began
    std::array<int64_t, kMemoryKinds> bytes{};  // alive, by kind
    int64_t all() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }  // Their sum.
  };

  double seconds = 0;  // of the step
  int64_t peak_bytes = 0;
  double peak_seconds = 0;
  std::string peak_at;        // the operator or node that reached the peak
  std::vector<Owner> owners;  // at the peak, the largest first
  std::vector<Point> points;  // at most 1,000; each is the highest moment of its part of the step
};

// Runs the step once. What packing or a checkpoint gives is the difference to the timeline of a step that has
// it.
OVERDRIVE_API MemoryTimeline memory_timeline(const std::function<void()>& step);
// 60 columns: the peak and its owners, and the course of the step as bars.
OVERDRIVE_API std::ostream& operator<<(std::ostream& out, const MemoryTimeline& timeline);

OVERDRIVE_API std::string to_json(const MemoryTimeline& timeline);  // With every field.
// One page that needs no network: the course of the step and the owners of the peak.
OVERDRIVE_API std::string to_html(const MemoryTimeline& timeline, const std::string& title = "step");

}  // namespace overdrive::inspect
