// A region by its two halves, for a pipeline that puts them in different places. One thread, one call:
//
//   Checkpointing region(fn, inputs);
//   Tensors outputs = region.checkpoint();       // runs fn without a graph
//   outputs = wait_for_copy(outputs);            // delays Checkpoint's gradient, not the recomputation
//   outputs = region.recompute(outputs);         // from here back, fn runs again before the gradient is needed
//
// All others call checkpoint(), which does both at once.
#pragma once

#include "checkpoint/region/options.h"
#include "engine/base/export.h"

#include <memory>

namespace overdrive::checkpoint {

class Segment;

class OVERDRIVE_API Checkpointing {  // The two halves of one region. One call of each, on one thread.
 public:
  // Undefined tensors are passed on to fn; there must be one that is defined.
  Checkpointing(Function fn, Tensors inputs, Options options = {});
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // fn's outputs. Outputs of a type that can have gradients require them, whether fn's would or not: that is
  // not known before fn has run again. The others have no history. Calls fn alone where grad mode is off, and
  // in forward mode: inside its levels, and for inputs with a tangent.
  Tensors checkpoint();

  // The outputs, or tensors made of them, with the recomputation tied to the first one that requires a
  // gradient. Where none requires one there will be no backward, and they come back as they are.
  Tensors recompute(Tensors outputs);

  // The same with another moment: the recomputation comes before the gradients of these outputs, and after the
  // gradient of the tensor that releases the token (release_in_backward() of dependency.h). Undefined where
  // there is nothing to run.
  at::Tensor recompute_before(Tensors& outputs);

 private:
  Function fn_;
  Tensors inputs_;
  Options options_;
  std::shared_ptr<Segment> segment_;
  bool was_run_ = false;
  bool is_tied_ = false;  // the recomputation has its place in the graph
};

}  // namespace overdrive::checkpoint
