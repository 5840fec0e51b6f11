// Which steps must end before another one begins, from the memory that each of them reads and writes. A
// function of ranges of addresses; any thread. Knows no programs and no lanes.
#pragma once

#include <cstdint>
#include <vector>

namespace overdrive::replay {

// Addresses from `begin` up to `end`. What is no memory, as a generator of random numbers, has addresses that
// no memory has.
struct AddressRange {
  uintptr_t begin;
  uintptr_t end;
};

// What one step touches.
struct Touched {
  std::vector<AddressRange> reads = {};
  std::vector<AddressRange> writes = {};
  // Nothing is known of the step: it comes after all steps before it, and before all steps after it.
  bool alone = false;
};

// Of each step in order: the steps before it that it must wait for, in ascending order. Two steps that touch
// the same byte keep their order, unless both read it.
using StepsBefore = std::vector<std::vector<int>>;
StepsBefore steps_before(const std::vector<Touched>& steps);

}  // namespace overdrive::replay
