// A region by its two halves, for a pipeline that puts them in different places:
//
//   Checkpointing region(fn, inputs);
//   Tensors outputs = region.checkpoint();       // runs fn without a graph
//   outputs = wait_for_copy(outputs);            // delays Checkpoint's gradient, not the recomputation
//   outputs = region.recompute(outputs);         // from here back, fn runs again before the gradient is needed
//
// An object is for one call, on one thread. Everybody else calls checkpoint(), which does both at once.
#pragma once

#include "checkpoint/region/options.h"
#include "engine/base/export.h"

#include <memory>

namespace overdrive::checkpoint {

class Segment;

class OVERDRIVE_API Checkpointing {
 public:
  // Undefined tensors are passed on to fn; there must be one that is defined.
  Checkpointing(Function fn, Tensors inputs, Options options = {});
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // fn's outputs. Those of a type that can have gradients require them, whether fn's would or not: nobody
  // knows before fn has run again. The others have no history. This is just fn where grad mode is off, and in
  // forward mode: inside its levels, and for inputs with a tangent.
  Tensors checkpoint();

  // The outputs, or what was made of them, with the recomputation tied to the first one that requires a
  // gradient. Without one there will be no backward, and they come back as they are.
  Tensors recompute(Tensors outputs);

  // The same, for who knows a better moment: the recomputation comes before the gradients of these outputs,
  // and after that of what the phony is joined with (dependency.h). Undefined where there is nothing to run.
  at::Tensor recompute_before(Tensors& outputs);

 private:
  Function fn_;
  Tensors inputs_;
  Options options_;
  std::shared_ptr<Segment> segment_;
};

}  // namespace overdrive::checkpoint
