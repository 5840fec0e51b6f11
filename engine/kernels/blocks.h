// Copies of a part of a tensor's rows into or out of a whole one, both contiguous: `outer` times one run of
// bytes. No state, any thread. Knows no tensor and no element type: captured steps use these functions too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace overdrive::kernels {

// Of a tensor whose rows have `row` bytes: writes `part` bytes of each row at `offset`, the rows of `from` lie
// side by side.
inline void put_into_rows(void* whole, const void* from, int64_t outer, size_t row, size_t offset,
                          size_t part) {
  if (part == 0) return;  // of an empty tensor, which may have no memory
  char* to = static_cast<char*>(whole) + offset;
  const char* next = static_cast<const char*>(from);
  for (int64_t i = 0; i < outer; ++i, to += row, next += part) std::memcpy(to, next, part);
}

// The same where the rest of each row becomes zero.
inline void put_into_zeros(void* whole, const void* from, int64_t outer, size_t row, size_t offset,
                           size_t part) {
  char* to = static_cast<char*>(whole);
  const char* next = static_cast<const char*>(from);
  for (int64_t i = 0; i < outer; ++i, to += row, next += part) {
    std::memset(to, 0, offset);
    if (part > 0) std::memcpy(to + offset, next, part);
    std::memset(to + offset + part, 0, row - offset - part);
  }
}

}  // namespace overdrive::kernels
