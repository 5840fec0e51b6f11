#include "replay/plan/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace overdrive::replay {

namespace {

size_t rounded(size_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// Memory with what was placed in it.
class Shelf {
 public:
  explicit Shelf(size_t capacity) : capacity_(capacity) {}

  // The lowest gap between the placed ones that live at the same time, or are kept apart; the capacity's size
  // when there is none.
  size_t offset_for(int index, const Lifetime& life, const KeptApart& apart) {
    taken_.clear();
    for (const auto& [number, other, offset] : placed_) {
      if ((other.first <= life.last && life.first <= other.last) || (apart && apart(index, number)))
        taken_.emplace_back(offset, offset + rounded(other.bytes));
    }
    std::sort(taken_.begin(), taken_.end());
    size_t offset = 0;
    for (const auto& [begin, end] : taken_) {
      if (offset + rounded(life.bytes) <= begin) break;
      offset = std::max(offset, end);
    }
    return offset <= capacity_ && life.bytes <= capacity_ - offset ? offset : capacity_;
  }
  void place(int index, const Lifetime& life, size_t offset) { placed_.push_back({index, life, offset}); }

 private:
  struct Placed {
    int index;
    Lifetime life;
    size_t offset;
  };
  const size_t capacity_;
  std::vector<Placed> placed_;
  std::vector<std::pair<size_t, size_t>> taken_;
};

// Indices by size.
template <typename T, typename Before>
std::vector<int> in_order(const std::vector<T>& items, const Before& before) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return before(items[a].bytes, items[b].bytes); });
  return order;
}

}  // namespace

// Largest first, each into the smallest room that has a place for it.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes, const std::vector<Room>& rooms,
                       const KeptApart& apart, size_t limit) {
  const int count = static_cast<int>(lifetimes.size());
  MemoryPlan plan{.places = std::vector<MemoryPlan::Place>(lifetimes.size(), {-1, 0})};
  Shelf arena(std::numeric_limits<size_t>::max());
  std::vector<Shelf> shelves;
  for (const Room& room : rooms) shelves.emplace_back(room.bytes);
  const std::vector<int> by_size = in_order(rooms, std::less<>());
  for (const int i : in_order(lifetimes, std::greater<>())) {
    const Lifetime& life = lifetimes[i];
    MemoryPlan::Place& place = plan.places[i];
    for (const int r : by_size) {
      if (life.last >= rooms[r].first || life.bytes == 0 || (apart && apart(i, count + r))) continue;
      const size_t offset = shelves[r].offset_for(i, life, apart);
      if (offset == rooms[r].bytes) continue;
      place = {r, offset};
      break;
    }
    Shelf& shelf = place.room < 0 ? arena : shelves[place.room];
    if (place.room < 0) {
      place.offset = arena.offset_for(i, life, apart);
      if (apart && place.offset + rounded(life.bytes) > limit) place.offset = arena.offset_for(i, life, {});
      plan.bytes = std::max(plan.bytes, place.offset + rounded(life.bytes));
    }
    shelf.place(i, life, place.offset);
  }
  return plan;
}

}  // namespace overdrive::replay
