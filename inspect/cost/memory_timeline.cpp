#include "inspect/cost/memory_timeline.h"

#include "engine/check_installed.h"
#include "hooks/interface/hook_calls.h"
#include "inspect/cost/allocation_log.h"
#include "inspect/cost/memory_owners.h"
#include "inspect/cost/printed.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

namespace overdrive::inspect {
namespace {

constexpr size_t kMostPoints = 1000;
constexpr size_t kBars = 12;
// Where an allocation was made by a hook for saved tensors, beside the number of its operator or node.
constexpr uint32_t kInHook = uint32_t{1} << 31;

bool inside_hook() { return hooks::InsideHook::anywhere(); }

MemoryKind kind_of(const std::vector<MemoryOwners::Owner>& owners, uint32_t owner) {
  return (owner & kInHook) != 0 ? MemoryKind::kSavedCopies : owners[owner & ~kInHook].first;
}

void keep_highest(std::vector<MemoryTimeline::Point>& points, const MemoryTimeline::Point& point, size_t slot) {
  if (points.size() <= slot) {
    points.resize(slot, points.empty() ? MemoryTimeline::Point{} : points.back());
    points.push_back(point);
  } else if (point.all() > points[slot].all()) {
    points[slot] = point;
  }
}

}  // namespace

const char* name_of(MemoryKind kind) {
  constexpr const char* kNames[kMemoryKinds] = {"other", "activations", "saved copies", "gradients"};
  return kNames[static_cast<size_t>(kind)];
}

MemoryTimeline memory_timeline(const std::function<void()>& step) {
  engine::check_installed("A memory timeline names the memory of backwards on Overdrive");
  MemoryTimeline timeline;
  std::vector<Allocation> allocations;
  std::vector<MemoryOwners::Owner> owners;
  const auto begin = std::chrono::steady_clock::now();
  const auto begin_ticks = static_cast<uint64_t>(c10::getApproximateTime());
  {
    AllocationLog log(&inside_hook, kInHook);
    const MemoryOwners named;
    step();
    allocations = log.take();
    owners = named.owners();
  }
  timeline.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto ticks = static_cast<double>(static_cast<uint64_t>(c10::getApproximateTime()) - begin_ticks);
  const auto moment = [&](size_t i) {
    return static_cast<double>(allocations[i].ticks - begin_ticks) / ticks * timeline.seconds;
  };

  MemoryTimeline::Point point;
  replay(allocations, allocations.size(), [&](size_t i, uint32_t owner, int64_t bytes, int64_t) {
    point.seconds = moment(i);
    point.bytes[static_cast<size_t>(kind_of(owners, owner))] += bytes;
    const auto slot = static_cast<size_t>(point.seconds / timeline.seconds * static_cast<double>(kMostPoints));
    keep_highest(timeline.points, point, std::min(slot, kMostPoints - 1));
  });

  const Peak peak = peak_of(allocations);
  if (peak.none) return timeline;
  timeline.peak_bytes = peak.bytes;
  timeline.peak_seconds = moment(peak.at);
  timeline.peak_at = owners[allocations[peak.at].owner & ~kInHook].second;
  for (const auto& [owner, share] : peak.owners) {
    if (share.bytes == 0) continue;
    timeline.owners.push_back(
        {kind_of(owners, owner), owners[owner & ~kInHook].second, share.bytes, share.tensors});
  }
  std::stable_sort(timeline.owners.begin(), timeline.owners.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return timeline;
}

std::ostream& operator<<(std::ostream& out, const MemoryTimeline& timeline) {
  out << "peak " << bytes_text(timeline.peak_bytes) << " after " << time_text(timeline.peak_seconds) << " of "
      << time_text(timeline.seconds) << "\nin " << short_name(timeline.peak_at).substr(0, 57) << "\n\n"
      << left("at the peak", 14) << left("made by", 25) << right("tensors", 8) << right("bytes", 8)
      << right("", 5) << "\n";
  constexpr size_t kRows = 12;
  int64_t rest = 0;
  for (size_t i = 0; i < timeline.owners.size(); ++i) {
    const MemoryTimeline::Owner& owner = timeline.owners[i];
    if (i >= kRows) {
      rest += owner.bytes;
      continue;
    }
    out << left(name_of(owner.kind), 14) << left(short_name(owner.name), 25)
        << right(std::to_string(owner.tensors), 8) << right(bytes_text(owner.bytes), 8)
        << right(percent(static_cast<double>(owner.bytes), static_cast<double>(timeline.peak_bytes)), 5)
        << "\n";
  }
  if (rest != 0) out << left("and others", 47) << right(bytes_text(rest), 8) << "\n";

  out << "\nover the step: A activations, S saved copies, G gradients\n";
  const size_t a_bar = std::max<size_t>(1, (timeline.points.size() + kBars - 1) / kBars);
  double shown = 0;
  for (size_t first = 0; first < timeline.points.size(); first += a_bar) {
    const size_t last = std::min(first + a_bar, timeline.points.size());
    const auto highest = std::max_element(timeline.points.begin() + static_cast<std::ptrdiff_t>(first),
                                          timeline.points.begin() + static_cast<std::ptrdiff_t>(last),
                                          [](const auto& a, const auto& b) { return a.all() < b.all(); });
    if (first != 0 && highest->seconds == shown) continue;  // nothing was allocated in this part
    shown = highest->seconds;
    std::string bar;
    constexpr char kLetters[kMemoryKinds] = {'.', 'A', 'S', 'G'};
    for (const size_t kind : {size_t{1}, size_t{2}, size_t{3}, size_t{0}}) {
      const double share = static_cast<double>(highest->bytes[kind]) / static_cast<double>(timeline.peak_bytes);
      bar += std::string(static_cast<size_t>(std::max(0.0, 40 * share + 0.5)), kLetters[kind]);
    }
    out << right(time_text(highest->seconds), 8) << right(bytes_text(highest->all()), 8) << " "
        << bar.substr(0, 42) << "\n";
  }
  return out;
}

}  // namespace overdrive::inspect
