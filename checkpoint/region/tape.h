// One run of a function, recorded: the graph of its outputs, which ends at the inputs, and the way back through
// it. Owned by who needs the gradients; one thread at a time.
#pragma once

#include "checkpoint/region/region.h"
#include "engine/base/stream_mark.h"

#include <memory>
#include <vector>

namespace overdrive::checkpoint {

class Tape {
 public:
  // Runs the region again, with a graph. Gradients are made for the inputs that are wanted: all that require
  // one.
  Tape(const Region& region, const Tensors& inputs);
  Tape(const Region& region, const Tensors& inputs, std::vector<bool> wanted);

  // Runs a backward from the outputs: parameters inside the function get their gradients, those of the inputs
  // are returned, in order, undefined where there is none. `gradients` has one for each differentiable
  // output of the first run; where the output needs no gradient this time, both are left out. Once.
  Tensors pull(const Tensors& gradients);

  // It was made on another stream than it will be pulled on, which is that device's current one now.
  void note_stream(c10::Device device);
  // This thread's current stream goes on when it is made.
  void wait() const { made_.wait(); }

 private:
  Tensors run(const Function& function, const Tensors& inputs);

  base::NodePtr inputs_;  // where the graph ends
  std::vector<bool> wanted_;
  // What the function was given: over the inputs' memory, so it must not become anyone's gradient, as what only
  // its node still has might.
  Tensors ends_;
  base::edge_list roots_;  // of the differentiable outputs; without a node where one needs no gradient
  bool elsewhere_ = false;
  base::StreamMark made_;
};

using TapePtr = std::shared_ptr<Tape>;

// Whether a tensor of this type can have a gradient at all: then Checkpoint has an output for it.
bool is_differentiable(const at::Tensor& tensor);

// Without a history of its own, this one: a tensor that shares memory and version with the one given.
at::Tensor with_history(const at::Tensor& tensor, const base::NodePtr& node);

}  // namespace overdrive::checkpoint
