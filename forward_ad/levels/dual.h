// Dual numbers: a tensor together with its derivative along one direction.
//
//   DualLevel level;
//   Tensor x = make_dual(point, direction, level);
//   auto [value, slope] = unpack_dual(f(x), level);
//
// A level is active on the thread that opened it, until the end of its scope; levels nest. Another thread
// enters it with a LevelScope, and each thread may have levels of its own. A dual that outlives its level reads
// as its primal. Several functions, and derivatives above the first, are easier with drivers.h.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace overdrive::forward_ad {

// A level, open for the length of a scope. Destroyed on the thread that made it.
class OVERDRIVE_API DualLevel {
 public:
  DualLevel();
  // Closes the level, and first all levels inside it.
  ~DualLevel();
  DualLevel(const DualLevel&) = delete;
  DualLevel& operator=(const DualLevel&) = delete;

  // Closes the level now; an error unless it is the innermost one and nobody is inside.
  void close();

  uint64_t idx() const { return idx_; }       // The index that make_dual() and others take.
  operator uint64_t() const { return idx_; }  // NOLINT: a level is its index

 protected:
  // Whether the level has a layer of its own, or needs none where none is in the way.
  enum class Ground { kLayer, kBareIfPossible };
  explicit DualLevel(Ground ground);

 private:
  uint64_t idx_;
};

// Enters, on this thread, a level that another thread opened. Until the end of the scope this thread sees that
// level and those around it, and nothing else. The opener must keep the level open for that long.
class OVERDRIVE_API LevelScope {
 public:
  explicit LevelScope(uint64_t level);
  ~LevelScope();
  LevelScope(const LevelScope&) = delete;
  LevelScope& operator=(const LevelScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The dual number primal + epsilon * tangent. It shares memory with both when their layouts agree, so in-place
// operators on it write into them.
OVERDRIVE_API at::Tensor make_dual(const at::Tensor& primal, const at::Tensor& tangent, uint64_t level);

struct DualParts {  // The parts of a dual number at one level.
  at::Tensor primal;
  at::Tensor tangent;  // undefined when the tensor does not depend on the level's direction
};

// The two parts, with no trace of the level; both may depend on other open levels.
OVERDRIVE_API DualParts unpack_dual(const at::Tensor& tensor, uint64_t level);

}  // namespace overdrive::forward_ad
