#include "replay/direct/row_copy.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace overdrive::replay {

namespace {

constexpr size_t kShortestRow = 16;

}  // namespace

// Dimensions in the order of the target's strides; two that follow each other in both layouts become one.
std::optional<RowCopy> RowCopy::of(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0 || to.sizes() != from.sizes() || to.scalar_type() != from.scalar_type())
    return std::nullopt;
  if (at::get_num_threads() > 1 && to.numel() > at::internal::GRAIN_SIZE) return std::nullopt;
  const auto element = static_cast<int64_t>(to.element_size());
  std::vector<Dimension> dimensions;
  for (int64_t i = 0; i < to.dim(); ++i) {
    if (to.size(i) > 1) dimensions.push_back({to.size(i), to.stride(i) * element, from.stride(i) * element});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) { return a.to > b.to; });
  std::vector<Dimension> joined;
  for (const Dimension& each : dimensions) {
    if (!joined.empty() && joined.back().to == each.size * each.to &&
        joined.back().from == each.size * each.from) {
      joined.back() = {joined.back().size * each.size, each.to, each.from};
    } else {
      joined.push_back(each);
    }
  }
  if (joined.empty() || joined.back().to != element || joined.back().from != element) return std::nullopt;
  RowCopy copy;
  copy.row_bytes_ = static_cast<size_t>(joined.back().size * element);
  joined.pop_back();
  if (copy.row_bytes_ < kShortestRow || joined.size() > copy.outer_.size()) return std::nullopt;
  std::copy_backward(joined.begin(), joined.end(), copy.outer_.end());
  copy.to_ = static_cast<char*>(to.mutable_data_ptr());
  copy.from_ = static_cast<const char*>(from.const_data_ptr());
  return copy;
}

// kBytes: of a row, 0 where it is none of the usual lengths, which compilers copy without a call.
template <size_t kBytes>
void RowCopy::copy_rows(char* to, const char* from) const {
  const Dimension& rows = outer_.back();
  for (int64_t i = 0; i < rows.size; ++i)
    std::memcpy(to + i * rows.to, from + i * rows.from, kBytes > 0 ? kBytes : row_bytes_);
}

size_t RowCopy::first() const {
  size_t first = 0;
  while (first + 1 < outer_.size() && outer_[first].size == 1) ++first;
  return first;
}

RowCopy RowCopy::part(int64_t begin, int64_t end) const {
  RowCopy result = *this;
  Dimension& cut = result.outer_[first()];
  cut.size = end - begin;
  result.to_ += begin * cut.to;
  result.from_ += begin * cut.from;
  return result;
}

void RowCopy::operator()(int64_t begin, int64_t end) const { part(begin, end).copy_all(); }

Touched RowCopy::touched(int64_t begin, int64_t end) const {
  const RowCopy rows = part(begin, end);
  std::array<int64_t, 4> sizes, to, from;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = rows.outer_[i].size;
    to[i] = rows.outer_[i].to;
    from[i] = rows.outer_[i].from;
  }
  return {.reads = {hull(rows.from_, sizes.data(), from.data(), sizes.size(), row_bytes_)},
          .writes = {hull(rows.to_, sizes.data(), to.data(), sizes.size(), row_bytes_)}};
}

void RowCopy::copy_all() const {
  const auto copy = [this](char* to, const char* from) {
    switch (row_bytes_) {
      case 16:
        return copy_rows<16>(to, from);
      case 32:
        return copy_rows<32>(to, from);
      case 64:
        return copy_rows<64>(to, from);
      case 128:
        return copy_rows<128>(to, from);
      default:
        return copy_rows<0>(to, from);
    }
  };
  const auto& [first, second, third, rows] = outer_;
  for (int64_t i = 0; i < first.size; ++i) {
    for (int64_t k = 0; k < second.size; ++k) {
      for (int64_t m = 0; m < third.size; ++m) {
        copy(to_ + i * first.to + k * second.to + m * third.to,
             from_ + i * first.from + k * second.from + m * third.from);
      }
    }
  }
}

}  // namespace overdrive::replay
