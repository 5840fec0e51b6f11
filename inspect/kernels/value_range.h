// The least and largest value of a stretch of numbers, and whether all are finite, in one pass. Pure functions
// of memory, without LibTorch; compiled to run at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace overdrive::inspect {

struct ValueRange {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  bool finite = true;  // no NaN, no infinity; else `least` and `most` mean nothing

  bool empty() const { return least > most; }
  void add(const ValueRange& other) {
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
    finite = finite && other.finite;
  }
};

ValueRange range_of(const float* values, size_t count);
ValueRange range_of(const double* values, size_t count);
// 16 bits: `exponent_bits` are all set in a NaN and an infinity. Says whether all are finite, and no more.
bool all_finite(const uint16_t* values, size_t count, uint16_t exponent_bits);

}  // namespace overdrive::inspect
