// What the memory plan of a program asks: which memories need a place, when, and what may lie in memory that
// the step leaves behind. A function of the program and its passes; any thread. Allocates nothing.
#pragma once

#include "replay/passes/passes.h"
#include "replay/plan/memory_plan.h"

#include <memory>
#include <vector>

namespace overdrive::replay {

struct MemoryNeeds {
  std::vector<Lifetime> lifetimes;
  std::vector<Room> rooms;
  // Of each lifetime and of each room: the memory in the program.
  std::vector<int> passing, lasting;

  MemoryNeeds(const Program& program, const Passes& passes);
  MemoryPlan plan() const;

 private:
  // Which operators come before which, by what they read and write. Only where steps run at the same time.
  class Order;
  std::shared_ptr<const Order> order_;

  // Lifetimes that would order two steps without need, and are not so many operators from each other.
  KeptApart apart_within(int near) const;
  size_t limit_for_lanes(size_t arena) const;
};

}  // namespace overdrive::replay
