// A tensor taken apart into plain tensors: its value and its tangents on all open levels, tangents of tangents
// included. For code that stores a tensor and must give it back as it was, such as a saved tensor. Owned by the
// caller; as thread-safe as a tensor. Leaves the plain tensors to the caller.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace overdrive::forward_ad {

class OVERDRIVE_API CapturedTangents {
 public:
  CapturedTangents();
  CapturedTangents(CapturedTangents&&) noexcept;
  CapturedTangents& operator=(CapturedTangents&&) noexcept;
  ~CapturedTangents();

  // Takes the tensor apart. On the thread that uses it, inside its levels.
  static CapturedTangents capture(const at::Tensor& tensor);

  // The plain tensors: the value first. Each may be moved out, stored and put back.
  std::vector<at::Tensor>& parts() { return parts_; }
  const std::vector<at::Tensor>& parts() const { return parts_; }

  // The levels on which the tensor has a tangent, outermost first.
  std::vector<uint64_t> levels() const;

  // Puts the tensor together again, without the levels that were closed meanwhile.
  at::Tensor restore() const;

 private:
  struct Piece;
  std::unique_ptr<Piece> take_apart(at::Tensor tensor);
  void take_bare_tangent(Piece& piece);
  at::Tensor put_together(const Piece& piece) const;

  std::vector<at::Tensor> parts_;
  std::unique_ptr<Piece> whole_;
};

}  // namespace overdrive::forward_ad
