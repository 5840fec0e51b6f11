// How a region is checkpointed. Plain values; any thread.
#pragma once

#include "checkpoint/region/policy.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;
// A part of a chain.
using Layer = std::function<at::Tensor(const at::Tensor&)>;

enum class Form {
  // Two nodes, Checkpoint and Recompute. The region runs without a graph; Recompute builds it again before
  // the gradient comes. For backward() without `inputs=`.
  kEarly,
  // The region keeps its graph but drops the tensors that it saves; the first that is needed again makes
  // the region run once more. For everything that a graph can do. Overdrive must be installed.
  kOnDemand,
};

struct Options {
  Form form = Form::kEarly;
  // Give the recomputation the random numbers of the first run (dropout masks), and leave the generators
  // as they were.
  bool preserve_rng = true;
  // An error when the recomputation gives other tensors than the first run, by number, shape, type and
  // device of the outputs and, on demand, of the saved tensors.
  bool check_determinism = true;
  // Compare their bits, too; the first run then reads each of these tensors once more.
  bool checksum = false;
  // On demand: end the recomputation once the last saved tensor is there.
  bool early_stop = true;
  // On demand: keep what was recomputed for further backwards through the same graph.
  bool keep_recomputed = false;
  // On demand: what to do with each tensor; all are recomputed without it.
  Policy policy = {};
  // And the hook for those that are to be packed.
  hooks::HooksPtr packer = nullptr;
  // Early: begin to run so many of the regions that come next again while this one's gradient is being made, if
  // they have an `ahead` too: on a thread of Overdrive's, and on a device on a stream of their own. The
  // function must allow that. Those that drew random numbers run on the thread where their turn would come.
  int64_t ahead = 0;
  // What errors call the region, beside its number.
  std::string name = {};
};

}  // namespace overdrive::checkpoint
