// The place of a dense tensor in its storage, and tensors made over a storage by geometry alone: without the
// dispatcher, so in every mode of the thread. Values; any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/core/impl/SizesAndStrides.h>

namespace overdrive::hooks {

struct Geometry {
  c10::impl::SizesAndStrides dims;
  int64_t offset = 0;  // in elements, from the start of the storage
  bool conj = false;   // the tensor reads its memory conjugated, or negated
  bool neg = false;

  static Geometry of(const at::Tensor& tensor);
  // One row from `begin`, `extent` elements long.
  static Geometry row(int64_t begin, int64_t extent);

  at::IntArrayRef sizes() const { return dims.sizes_arrayref(); }
  at::IntArrayRef strides() const { return dims.strides_arrayref(); }
  int64_t numel() const;
  // One past the last element.
  int64_t end() const;
  int64_t extent() const { return end() - offset; }
  // Whether the memory between the first element and the last belongs to the tensor, each element once.
  bool is_dense() const;

  // The number of elements in memory: those that the tensor repeats count once.
  int64_t distinct() const;
  // The memory that is read: no element twice, without conjugation and negation.
  Geometry each_once() const;

  bool operator==(const Geometry&) const = default;
};

// A tensor without history over the storage of `base`, with the version counter given.
at::Tensor view_over(const at::Tensor& base, const Geometry& geometry, const c10::VariableVersion& counter);

// A loop, because the call behind == takes three times as long for few numbers.
inline bool same_numbers(at::IntArrayRef a, at::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

// The tensor, or a copy with these strides (0 where elements are repeated).
at::Tensor with_strides(at::Tensor tensor, at::IntArrayRef strides);

}  // namespace overdrive::hooks
