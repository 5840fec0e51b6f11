#include "replay/file/coverage.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace overdrive::replay {

namespace {

// Runs of elements of one tensor that are followed.
constexpr size_t kMostRuns = size_t{1} << 20;

// Calls the visitor with the begin and the end of each run of elements that lie side by side; false when a
// visit was.
template <typename Visit>
bool each_run(const Value& value, const Visit& visit) {
  const size_t element = c10::elementSize(value.type);
  struct Dimension {
    size_t size, stride;
  };
  std::vector<Dimension> dimensions;
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] == 0) return true;
    if (value.sizes[i] > 1 && value.strides[i] > 0)
      dimensions.push_back({static_cast<size_t>(value.sizes[i]), static_cast<size_t>(value.strides[i])});
  }
  std::sort(dimensions.begin(), dimensions.end(), [](auto& a, auto& b) { return a.stride < b.stride; });
  size_t run = 1, first = 0;
  while (first < dimensions.size() && dimensions[first].stride <= run) {
    run = dimensions[first].stride * (dimensions[first].size - 1) + run;
    ++first;
  }
  dimensions.erase(dimensions.begin(), dimensions.begin() + static_cast<int64_t>(first));
  size_t runs = 1;
  for (const Dimension& each : dimensions) {
    TORCH_CHECK(each.size <= kMostRuns / runs, "a tensor lies in too many pieces.");
    runs *= each.size;
  }
  for (size_t i = 0; i < runs; ++i) {
    size_t at = static_cast<size_t>(value.offset), rest = i;
    for (const Dimension& each : dimensions) {
      at += rest % each.size * each.stride;
      rest /= each.size;
    }
    if (!visit(at * element, (at + run) * element)) return false;
  }
  return true;
}

}  // namespace

void Coverage::add(size_t begin, size_t end) {
  if (begin >= end) return;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_.emplace(begin, end);
}

bool Coverage::has(size_t begin, size_t end) const {
  if (begin >= end) return true;
  const auto next = ranges_.upper_bound(begin);
  return next != ranges_.begin() && std::prev(next)->second >= end;
}

void Coverage::add(const Value& value) {
  each_run(value, [&](size_t begin, size_t end) {
    add(begin, end);
    return true;
  });
}

bool Coverage::has(const Value& value) const {
  if (value.end() == 0 || has(value.offset * c10::elementSize(value.type), value.end())) return true;
  return each_run(value, [&](size_t begin, size_t end) { return has(begin, end); });
}

}  // namespace overdrive::replay
