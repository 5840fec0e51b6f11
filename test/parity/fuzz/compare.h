// Runs a program on two engines, one after the other, and says where they first differ. Switches
// the default engine of the process; one comparison at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "test/parity/fuzz/coverage.h"
#include "test/parity/fuzz/lane.h"
#include "test/parity/fuzz/observe.h"
#include "test/parity/fuzz/program.h"

namespace overdrive::fuzz {

// What every comparison rests on: one intra-op thread, warnings that are given each time, memory
// that is counted. Once a process is enough, more does no harm.
void prepare();

// An engine to run on: `enter` makes it the default one.
struct Contender {
  std::string name;
  std::function<void()> enter;
};

// The base engine, and Overdrive by install().
Contender stock();
Contender ours();

struct Difference {
  std::string left, right;  // what was seen first that is not the same
  std::string before;       // the last line that was
};

// Runs the program on the engine that is the default now; `on_lane` is around all that a thread of it does.
Observation observe(const Program& program, Reached* reached = nullptr,
                    const std::function<void()>& on_switch = {}, const LaneScope& on_lane = {});

std::optional<Difference> compare(const Observation& left, const Observation& right);
std::optional<Difference> compare(const Program& program, const Contender& left, const Contender& right,
                                  Reached* reached = nullptr);

}  // namespace overdrive::fuzz
