#include "inspect/cost/remedies.h"

#include "hooks/packers/quantise.h"
#include "inspect/cost/forward_segments.h"
#include "inspect/cost/saved_blocks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

namespace overdrive::inspect {
namespace {

using Block = SavedBlocks::Block;
constexpr size_t kNever = RecordedNode::kNever;

// The changes of a step's memory, in any order at first. Of several at one position, the end of a node comes
// before the begin of the next one, and a copy is made before its source is freed.
class Changes {
 public:
  enum At { kOpMakes, kOpFrees, kNodeEnds, kNodeBegins, kItself };

  void add(size_t position, At at, int64_t bytes) {
    list_.push_back({position, static_cast<uint32_t>(at), static_cast<uint32_t>(list_.size()), bytes});
  }
  int64_t peak() {
    std::sort(list_.begin(), list_.end(), [](const Change& a, const Change& b) {
      return std::tie(a.position, a.at, a.number) < std::tie(b.position, b.at, b.number);
    });
    int64_t alive = 0, most = 0;
    for (const Change& change : list_) most = std::max(most, alive += change.bytes);
    return most;
  }

 private:
  struct Change {
    size_t position;
    uint32_t at, number;
    int64_t bytes;
  };
  std::vector<Change> list_;
};

size_t end_of(const StepRecord& step, const std::vector<uint32_t>& holders,
              const std::function<bool(const RecordedNode&)>& counts) {
  size_t end = 0;
  for (const uint32_t holder : holders) {
    if (counts(step.nodes[holder])) end = std::max(end, step.nodes[holder].end);
  }
  return end;
}

// The block, which the graph holds until `held` (0: not at all) instead of until its holders are done.
void keep(Changes& changes, const Block& block, size_t held) {
  changes.add(block.from, Changes::kItself, block.bytes);
  if (block.to == kNever && (block.holders.empty() || block.programs)) return;
  if (block.holders.empty() || block.programs || block.last_use >= block.to) {
    changes.add(block.to, Changes::kItself, -block.bytes);
  } else if (held > block.last_use) {
    if (held < block.to)
      changes.add(held, Changes::kNodeEnds, -block.bytes);
    else if (block.to != kNever)
      changes.add(block.to, Changes::kItself, -block.bytes);
  } else {
    changes.add(block.last_use, Changes::kOpFrees, -block.bytes);
  }
}

// --- int8 ---

bool int8_holds_all(const RecordedNode& node, const SavedBlocks& all, const Block& block) {
  for (const RecordedSave& save : node.saved) {
    if (!save.int8_takes && all.find(save.memory, all.step().run_begins[node.run]) == &block) return false;
  }
  return true;
}

int64_t peak_with_int8(const SavedBlocks& all) {
  const StepRecord& step = all.step();
  Changes changes;
  for (const Block& block : all.blocks()) {
    keep(changes, block, end_of(step, block.holders, [&](const RecordedNode& node) {
           return !int8_holds_all(node, all, block);
         }));
  }
  const int64_t scaled = hooks::QuantiseOptions().block;  // elements that share a scale
  // Tensors of one memory and geometry share their packed form.
  struct Unit {
    size_t made = kNever, end = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<const void*, std::string>, Unit> units;
  for (const RecordedNode& node : step.nodes) {
    const RecordedOp* maker = all.maker_of(node.sequence);
    std::set<std::pair<const void*, std::string>> unpacked;
    for (const RecordedSave& save : node.saved) {
      if (!save.int8_takes || maker == nullptr) continue;
      Unit& unit = units[{save.memory, save.geometry}];
      unit.made = std::min(unit.made, maker->end);
      unit.end = std::max(unit.end, node.end);
      unit.bytes = save.elements + (save.elements + scaled - 1) / scaled * static_cast<int64_t>(sizeof(float));
      if (node.begin == kNever || !unpacked.insert({save.memory, save.geometry}).second) continue;
      changes.add(node.begin, Changes::kNodeBegins, save.bytes);
      changes.add(node.end, Changes::kNodeEnds, -save.bytes);
    }
  }
  for (const auto& [key, unit] : units) {
    changes.add(unit.made, Changes::kOpMakes, unit.bytes);
    if (unit.end != kNever) changes.add(unit.end, Changes::kNodeEnds, -unit.bytes);
  }
  return changes.peak();
}

// --- checkpoints ---

// The second run: everything that the first one allocated, and the saved tensors stay for their nodes.
void run_again(Changes& changes, const SavedBlocks& all, const Segment& segment) {
  const StepRecord& step = all.step();
  size_t begin = kNever;
  for (const RecordedNode& node : step.nodes) {
    if (segment.has(node) && !node.saved.empty()) begin = std::min(begin, node.begin);
  }
  if (begin == kNever) return;
  struct Again {
    size_t at;
    int64_t bytes;
  };
  std::vector<Again> again;
  int64_t left = 0;  // goes with the function's variables
  for (const Block& block : all.blocks()) {
    if (block.from < segment.begin || block.from >= segment.end) continue;
    again.push_back({block.from, block.bytes});
    const size_t held =
        end_of(step, block.holders, [&](const RecordedNode& node) { return segment.has(node); });
    if (held != 0) {
      if (held != kNever) changes.add(held, Changes::kNodeEnds, -block.bytes);
    } else if (block.to < segment.end) {
      again.push_back({block.to, -block.bytes});
    } else {
      left += block.bytes;
    }
  }
  std::sort(again.begin(), again.end(), [](const Again& a, const Again& b) { return a.at < b.at; });
  for (const Again& one : again) changes.add(begin, Changes::kNodeBegins, one.bytes);
  changes.add(begin, Changes::kNodeBegins, -left);
}

int64_t peak_with_checkpoints(const SavedBlocks& all, const std::vector<Segment>& segments) {
  const StepRecord& step = all.step();
  Changes changes;
  const auto segment_of = [&](const RecordedNode& node) {
    return std::find_if(segments.begin(), segments.end(), [&](const Segment& one) { return one.has(node); });
  };
  for (const Block& block : all.blocks()) {
    // Memory from before a segment is an input of it, and the region keeps it.
    const size_t held = end_of(step, block.holders, [&](const RecordedNode& node) {
      const auto segment = segment_of(node);
      return segment == segments.end() || block.from < segment->begin;
    });
    size_t inputs_until = 0;
    for (const Segment& segment : segments) {
      if (block.from >= segment.begin || block.last_use <= segment.begin || block.to < segment.begin) continue;
      // Read by the segment, so far as one can know: the first operators of it read its input.
      for (const RecordedOp& op : step.ops) {
        if (op.begin < segment.begin || op.end > segment.end) continue;
        for (const void* memory : op.memory) {
          if (all.find(memory, op.begin) != &block) continue;
          for (const RecordedNode& node : step.nodes) {
            if (segment.has(node) && node.end != kNever) inputs_until = std::max(inputs_until, node.end);
          }
        }
      }
    }
    if (inputs_until > held && inputs_until > block.to && !block.programs) {
      changes.add(block.from, Changes::kItself, block.bytes);
      changes.add(inputs_until, Changes::kNodeEnds, -block.bytes);
    } else {
      keep(changes, block, std::max(held, inputs_until));
    }
  }
  for (const Segment& segment : segments) run_again(changes, all, segment);
  return changes.peak();
}

std::vector<uint64_t> at_most(std::vector<uint64_t> cuts, size_t most) {
  if (cuts.size() <= most) return cuts;
  std::vector<uint64_t> some;
  for (size_t i = 0; i < most; ++i) some.push_back(cuts[i * (cuts.size() - 1) / (most - 1)]);
  return some;
}

Remedy best_checkpoint(const SavedBlocks& all, const std::vector<uint64_t>& cuts, bool several) {
  Remedy best{.kind = several ? Remedy::kCheckpoints : Remedy::kCheckpoint, .peak_bytes = -1};
  const auto consider = [&](const std::vector<Segment>& segments) {
    const int64_t peak = peak_with_checkpoints(all, segments);
    if (best.peak_bytes >= 0 && peak >= best.peak_bytes) return;
    best.peak_bytes = peak;
    best.segments.clear();
    for (const Segment& one : segments) best.segments.emplace_back(one.first, one.last);
  };
  if (several) {
    for (size_t count = 2; count < cuts.size() && count <= 12; ++count) {
      std::vector<Segment> segments;
      for (size_t i = 0; i < count; ++i) {
        const size_t from = i * (cuts.size() - 1) / count, to = (i + 1) * (cuts.size() - 1) / count;
        segments.push_back(segment_between(all.step(), cuts[from], cuts[to]));
      }
      consider(segments);
    }
  } else {
    for (size_t from = 0; from + 1 < cuts.size(); ++from) {
      for (size_t to = from + 1; to < cuts.size(); ++to)
        consider({segment_between(all.step(), cuts[from], cuts[to])});
    }
  }
  if (best.segments.empty()) return best;
  best.name = several ? "checkpoint " + std::to_string(best.segments.size()) + " segments"
                      : "checkpoint " + name_of_segment(all, best.segments[0].first, best.segments[0].second);
  return best;
}

}  // namespace

std::vector<Remedy> remedies_for(const StepRecord& step) {
  std::vector<Remedy> remedies;
  if (step.nodes.empty() || step.allocations.empty()) return remedies;
  const SavedBlocks all(step);
  remedies.push_back({.kind = Remedy::kInt8,
                      .name = "pack saved tensors as int8",
                      .peak_bytes = peak_with_int8(all),
                      .segments = {}});
  // Every pair of cuts is tried, and each trial takes as long as the step is large.
  const double trials = 3e7 / static_cast<double>(step.allocations.size() + step.ops.size());
  const auto cuts =
      at_most(natural_cuts(step), std::clamp<size_t>(static_cast<size_t>(std::sqrt(trials)), 2, 24));
  for (const bool several : {false, true}) {
    Remedy best = best_checkpoint(all, cuts, several);
    if (!best.segments.empty()) remedies.push_back(std::move(best));
  }
  std::stable_sort(remedies.begin(), remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.peak_bytes < b.peak_bytes; });
  return remedies;
}

}  // namespace overdrive::inspect
