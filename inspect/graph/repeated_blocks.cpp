#include "inspect/graph/repeated_blocks.h"

#include <algorithm>
#include <cstddef>

namespace overdrive::inspect {
namespace {

uint32_t count_repeats(const std::vector<uint32_t>& values, size_t first, uint32_t period) {
  size_t at = first + period;
  while (at < values.size() && values[at] == values[at - period]) ++at;
  return static_cast<uint32_t>((at - first) / period);
}

// Two equal neighbours are no block that a reader gains from.
bool is_worth_folding(uint32_t period, uint32_t count) {
  return count >= 3 ? period * count >= 6 : count == 2 && period >= 8;
}

}  // namespace

std::vector<Repetition> find_repetitions(const std::vector<uint32_t>& values) {
  std::vector<Repetition> found;
  const auto size = static_cast<uint32_t>(values.size());
  for (uint32_t at = 0; at < size;) {
    Repetition best{at, 1, 1};
    const uint32_t longest = std::min(kLongestPeriod, (size - at) / 2);
    for (uint32_t period = 1; period <= longest; ++period) {
      const uint32_t count = count_repeats(values, at, period);
      if (is_worth_folding(period, count) && period * count > best.period * best.count) {
        best = {at, period, count};
      }
      // A longer period can gain less than itself.
      if (best.count > 1 && best.period * best.count > size - at - best.period) break;
      if (best.count > 1 && best.period * best.count >= 4 * kLongestPeriod) break;
    }
    if (best.count > 1) found.push_back(best);
    at += best.period * best.count;
  }
  return found;
}

}  // namespace overdrive::inspect
