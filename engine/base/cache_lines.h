// Asks the processor for memory before it is read. The nodes of a long graph have left the cache since the
// forward, and a walk that reads them one by one waits for memory at each. No state, any thread; a wrong or
// null address is without effect.
#pragma once

#include <cstddef>

namespace overdrive::base {

inline void fetch_lines(const void* begin, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const char*>(begin) + at);
}

}  // namespace overdrive::base
