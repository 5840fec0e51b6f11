#include "replay/bind/share.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

bool overlap(const std::vector<AddressRange>& some, const std::vector<AddressRange>& others) {
  return std::any_of(some.begin(), some.end(), [&](const AddressRange& a) {
    return std::any_of(others.begin(), others.end(),
                       [&](const AddressRange& b) { return a.begin < b.end && b.begin < a.end; });
  });
}

}  // namespace

Step::State::~State() = default;

std::vector<Share> Step::State::shares(int /*count*/) const { return {}; }

std::vector<int64_t> share_bounds(int64_t size, int64_t grain, int count) {
  const int64_t grains = (size + grain - 1) / grain, parts = std::min<int64_t>(count, grains);
  std::vector<int64_t> bounds{0};
  for (int64_t i = 1; i <= parts; ++i) bounds.push_back(std::min(size, grains * i / parts * grain));
  return bounds;
}

bool are_apart(const std::vector<Share>& shares) {
  for (size_t i = 0; i < shares.size(); ++i) {
    for (size_t k = 0; k < shares.size(); ++k) {
      if (i == k) continue;
      const Touched &one = shares[i].touched, &other = shares[k].touched;
      if (overlap(one.writes, other.writes) || overlap(one.writes, other.reads)) return false;
    }
  }
  return true;
}

AddressRange hull(const void* begin, const int64_t* sizes, const int64_t* strides, size_t dimensions,
                  size_t element) {
  AddressRange range{reinterpret_cast<uintptr_t>(begin), reinterpret_cast<uintptr_t>(begin)};
  for (size_t i = 0; i < dimensions; ++i) {
    const int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? range.begin : range.end) += static_cast<uintptr_t>(reach);
  }
  range.end += element;
  return range;
}

}  // namespace overdrive::replay
