// A tensor taken apart into plain tensors: its value and its tangents on all open
// levels, tangents of tangents included. For whoever stores a tensor as bytes and must
// give it back as it was (a saved tensor that goes to disk and returns). Owned by the
// caller; as thread-safe as a tensor. What becomes of the plain tensors is not its
// business.
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

  // Puts the tensor together again. A level that was closed meanwhile is left out, as it
  // would be for the tensor itself.
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
