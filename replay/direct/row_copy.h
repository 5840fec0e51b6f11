// A copy between two layouts of the same elements, where rows of some of them lie together in both: all rows by
// one loop, without LibTorch's iterator. A value; any thread; one thread does all of a copy.
#pragma once

#include "engine/base/torch_types.h"
#include "replay/bind/share.h"

#include <array>
#include <optional>

namespace overdrive::replay {

class RowCopy {
 public:
  // None where rows are too short to gain anything, or where LibTorch would use several threads.
  static std::optional<RowCopy> of(const at::Tensor& to, const at::Tensor& from);

  // Of the outermost dimension that has more than one row.
  int64_t size() const { return outer_[first()].size; }
  // Rows from `begin` up to `end` of that dimension.
  void operator()(int64_t begin, int64_t end) const;
  Touched touched(int64_t begin, int64_t end) const;

 private:
  struct Dimension {
    int64_t size = 1;
    // In bytes.
    int64_t to = 0;
    int64_t from = 0;
  };
  size_t first() const;
  RowCopy part(int64_t begin, int64_t end) const;
  void copy_all() const;
  template <size_t kBytes>
  void copy_rows(char* to, const char* from) const;

  char* to_ = nullptr;
  const char* from_ = nullptr;
  size_t row_bytes_ = 0;
  // From the outermost to the innermost.
  std::array<Dimension, 4> outer_ = {};
};

}  // namespace overdrive::replay
