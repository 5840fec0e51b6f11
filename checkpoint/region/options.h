// The options of a region, and the types of its function and tensors. Plain values; any thread.
#pragma once

#include "checkpoint/region/policy.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;
// A part of a chain.
using Layer = std::function<at::Tensor(const at::Tensor&)>;

enum class Form {
  // Two nodes, Checkpoint and Recompute. The region runs without a graph; Recompute builds the graph before the
  // gradient comes. For backward() without `inputs=`.
  kEarly,
  // The region keeps its graph but drops the tensors that its nodes save. The first node that needs its tensor
  // makes the region run again. For everything that a graph can do. Overdrive must be installed.
  kOnDemand,
};

struct Options {  // Of one region, copied when it runs.
  // Unset: on demand; early for the stages of a Pipeline and with Revolve, which have no other form.
  std::optional<Form> form = std::nullopt;
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
  // On demand: the choice for each tensor. Without a policy all are recomputed.
  Policy policy = {};
  // The hook for tensors that the policy packs.
  hooks::HooksPtr packer = nullptr;
  // Early: the number of regions that begin to run again while this region's gradient is made, if they have an
  // `ahead` too: on a thread of Overdrive's, and on a device on a stream of their own. The function must allow
  // that. Regions that drew random numbers run on the thread of their turn; regions that wrote to tensors from
  // outside, in their turn.
  int64_t ahead = 0;
  // The name of the region in errors, beside its number.
  std::string name = {};
};

}  // namespace overdrive::checkpoint
