// Numbers on which another order of additions shows, for whoever tries whether a kernel has the same bits when
// it is given a part of its work. Functions; any thread.
#pragma once

#include <cstdint>
#include <random>

namespace overdrive::replay {

enum class ProbeNumbers : uint8_t {
  kAlike,     // of about one magnitude
  kFarApart,  // of very different ones
  // Some are infinite, some NaNs, each with bits of its own: a sum keeps the one that its first instruction
  // met.
  kNotNumbers,
};
constexpr ProbeNumbers kAllProbeNumbers[]{ProbeNumbers::kAlike, ProbeNumbers::kFarApart,
                                          ProbeNumbers::kNotNumbers};

float probe_number(ProbeNumbers kind, std::mt19937_64& random);

// How often a kernel is tried on numbers of a kind where a result has so many elements: two orders of a short
// sum often give the same bits, so that few elements tell little.
int probe_rounds(ProbeNumbers kind, int64_t elements);

}  // namespace overdrive::replay
