// Takes the calling thread out of inference mode for as long as a driver runs: nothing has a
// derivative there, and all would come out as zeros. Does nothing elsewhere. One thread's;
// the results are ordinary tensors without a graph. Private.
#pragma once

#include "engine/base/outside_inference.h"
#include "forward_ad/drivers/driver_functions.h"

namespace overdrive::forward_ad {

class NormalMode {
 public:
  // What was made in inference mode is copied: it can be part of nothing else.
  Tensors usable(const Tensors& tensors) const {
    if (!outside_.has_left()) return tensors;
    Tensors copies;
    for (const at::Tensor& tensor : tensors)
      copies.push_back(tensor.defined() && tensor.is_inference() ? tensor.clone() : tensor);
    return copies;
  }

 private:
  const base::OutsideInference outside_;
};

}  // namespace overdrive::forward_ad
