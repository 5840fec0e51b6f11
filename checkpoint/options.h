// How a region is checkpointed. Plain values; any thread.
#pragma once

#include <string>

namespace overdrive::checkpoint {

struct Options {
  // Give the recomputation the random numbers of the first run (dropout masks), and leave the generators
  // as they were.
  bool preserve_rng = true;
  // An error when the recomputation gives other outputs than the first run, by number, shape, type and
  // device.
  bool check_determinism = true;
  // Compare their bits, too; the first run then reads each of them once more.
  bool checksum = false;
  // What errors call the region, beside its number.
  std::string name = {};
};

}  // namespace overdrive::checkpoint
