#include "hooks/memory/pending.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace overdrive::hooks {

void Pending::add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit,
                  const SharedUnits::Units& smaller, const SaveInfo& info) {
  const c10::Storage& storage = tensor.storage();
  const base::MutexLock lock(mutex_);
  if (info.node == nullptr) {
    if (nameless_.size() == kMostNameless) nameless_.erase(nameless_.begin());
    nameless_.push_back({info.thread, info.sequence_nr, unit});
  }
  const auto is_there = [&](const Waiting& one) {
    return one.storage._unsafe_get_target() == storage.unsafeGetStorageImpl();
  };
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_there);
  if (found != waiting_.end()) {
    // Those that hold nothing any more must not count as holders of the storage.
    std::erase_if(found->units, [&](const std::weak_ptr<PackUnit>& one) {
      return std::any_of(smaller.begin(), smaller.end(), [&](const std::shared_ptr<PackUnit>& replaced) {
        return !one.owner_before(replaced) && !replaced.owner_before(one);
      });
    });
    found->units.push_back(unit);
  } else {
    waiting_.push_back({storage.getWeakStorageImpl(), static_cast<int64_t>(storage.nbytes()), {unit}});
  }
}

void Pending::meet(const base::Node& node) {
  std::vector<Met> met;  // outlives the lock: the last owner of a unit may be here
  {
    const base::MutexLock lock(mutex_);
    uint64_t first = UINT64_MAX;
    for (const Nameless& one : nameless_) first = std::min(first, one.sequence_nr);
    c10::SmallVector<const base::Node*, kMostVisited> visited;
    if (!nameless_.empty()) visited.push_back(&node);
    for (size_t i = 0; i < visited.size(); ++i) {
      look_at(*visited[i], met);
      for (const base::Edge& edge : visited[i]->next_edges()) {
        const base::Node* next = edge.function.get();
        // Those with smaller numbers are older than all that is looked for.
        if (next == nullptr || next->sequence_nr() < first || visited.size() == kMostVisited) continue;
        visited.push_back(next);
      }
    }
  }
  for (const Met& one : met) one.unit->note_node_name(one.node->name());
}

void Pending::look_at(const base::Node& node, std::vector<Met>& met) {
  std::erase_if(nameless_, [&](const Nameless& one) {
    if (one.sequence_nr != node.sequence_nr() || one.thread != node.thread_id()) return false;
    if (auto unit = one.unit.lock()) met.push_back({std::move(unit), &node});
    return true;
  });
}

void Pending::look(const SaveInfo& now) {
  std::exception_ptr error;
  for (const auto& unit : take_due(now)) {
    try {
      unit->pack_waiting();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void Pending::move_units(Waiting& from, const SaveInfo& now, Units& to, Units& in_use) {
  std::erase_if(from.units, [&](const auto& weak) {
    auto unit = weak.lock();
    if (unit == nullptr) return true;
    const SaveInfo& info = unit->memory().info();
    const bool is_in_use = info.thread == now.thread && info.sequence_nr == now.sequence_nr;
    (is_in_use ? in_use : to).push_back(std::move(unit));
    return !is_in_use;
  });
}

Pending::Units Pending::take_due(const SaveInfo& now) {
  Units due, in_use;  // outlive the lock: the last owner of a unit may be here
  const base::MutexLock lock(mutex_);
  int64_t bytes = 0, tensors = 0;
  for (Waiting& one : waiting_) {
    std::erase_if(one.units, [](const auto& unit) { return unit.expired(); });
    if (one.storage.use_count() <= one.units.size()) move_units(one, now, due, in_use);
    if (one.units.empty()) continue;
    bytes += one.bytes;
    tensors += static_cast<int64_t>(one.units.size());
  }
  for (Waiting& one : waiting_) {
    if (tensors <= schedule_.window_tensors && bytes <= schedule_.window_bytes) break;
    if (one.units.empty()) continue;
    tensors -= static_cast<int64_t>(one.units.size());
    move_units(one, now, due, in_use);
    tensors += static_cast<int64_t>(one.units.size());
    if (one.units.empty()) bytes -= one.bytes;
  }
  std::erase_if(waiting_, [](const Waiting& one) { return one.units.empty(); });
  return due;
}

}  // namespace overdrive::hooks
