// A recorded run of a region: the graph of its outputs, which ends at the inputs, and the way back through it.
// Owned by the node that needs the gradients; one thread at a time.
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

  // Runs a backward from the outputs, once. Parameters inside the function get their gradients; those of the
  // inputs are returned, in order, undefined where there is none. `gradients` has one for each differentiable
  // output of the first run. An output that needs no gradient this time is left out, with its gradient.
  Tensors pull(const Tensors& gradients);

  // The tape was made on the device's current stream, and will be pulled on another one.
  void note_stream(c10::Device device);
  // This thread's current stream goes on when the tape is made.
  void wait() const { made_.wait(); }

 private:
  Tensors run(const Function& function, const Tensors& inputs);

  base::NodePtr inputs_;  // where the graph ends
  std::vector<bool> wanted_;
  // The arguments of the function. They lie over the inputs' memory, so none may become a gradient, as a tensor
  // that only its node still has might.
  Tensors ends_;
  base::edge_list roots_;     // of the differentiable outputs; without a node where one needs no gradient
  OuterValues outer_values_;  // that nodes of the graph may have saved
  bool elsewhere_ = false;
  base::StreamMark made_;
};

using TapePtr = std::shared_ptr<Tape>;

// Whether a tensor of this type can have a gradient at all.
bool is_differentiable(const at::Tensor& tensor);

// A tensor that shares memory and version with the one given, and has this history.
at::Tensor with_history(const at::Tensor& tensor, const base::NodePtr& node);

}  // namespace overdrive::checkpoint
