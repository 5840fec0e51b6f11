// A copy between two layouts of the same elements, where rows of some of them lie together in both: all rows by
// one loop, without LibTorch's iterator. A value; any thread; one thread does all of a copy.
#pragma once

#include "engine/base/torch_types.h"

#include <array>
#include <optional>

namespace overdrive::replay {

class RowCopy {
 public:
  // None where rows are too short to gain anything, or where LibTorch would use several threads.
  static std::optional<RowCopy> of(const at::Tensor& to, const at::Tensor& from);

  void operator()() const;

 private:
  struct Dimension {
    int64_t size = 1;
    // In bytes.
    int64_t to = 0;
    int64_t from = 0;
  };
  template <size_t kBytes>
  void copy_rows(char* to, const char* from) const;

  char* to_ = nullptr;
  const char* from_ = nullptr;
  size_t row_bytes_ = 0;
  // From the outermost to the innermost.
  std::array<Dimension, 4> outer_ = {};
};

}  // namespace overdrive::replay
