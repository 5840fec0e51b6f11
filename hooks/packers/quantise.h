// Keeps floats in fewer bits. Lossy: for activations that bear it. Any thread.
//
// kBFloat16 keeps half of the bytes and three digits. kInt8 keeps a quarter; for each block of elements in
// memory order the error is at most 1/252 (nearest) or 1/126 (stochastic) of the largest magnitude in it.
// Nearest rounding makes no zero of another number (a small element becomes 1/126 of the largest), so masks
// stay as they were. NaN and infinities come back. Tensors that are not float32 pass, and small ones: a loss's
// log-probabilities and a norm's statistics need their digits.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

#include <cstdint>

namespace overdrive::hooks {

enum class QuantisedType { kBFloat16, kInt8 };

// Stochastic rounding goes up or down by chance, so that errors do not add up. Its random numbers are a
// function of (seed, sequence number of the node, index of the save, element): no generator moves, and a run
// can be repeated. It may make a zero of a small element.
enum class Rounding { kNearest, kStochastic };

struct QuantiseOptions {  // The type, its scales and its rounding.
  QuantisedType type = QuantisedType::kInt8;
  Rounding rounding = Rounding::kNearest;
  int64_t block = 128;       // elements that share a scale, a power of two from 16 to 4096; kInt8 only
  uint64_t seed = 0;         // kStochastic only
  int64_t min_bytes = 4096;  // smaller tensors stay as they are
  // Large idle pieces of CPU memory are kept up to so many bytes: fresh pieces cost as much as filling them.
  int64_t most_idle_bytes = int64_t{128} << 20;
};

OVERDRIVE_API HooksPtr quantise(QuantiseOptions options = {});  // Throws for options that do not fit.

}  // namespace overdrive::hooks
