// Kinds of saved tensors: which ones a hook may have, where one comes from, and which ones LibTorch changes
// without raising their version. Owned by nobody. Any thread; looks and changes nothing.
#pragma once

#include "engine/base/export.h"
#include "engine/base/torch_types.h"

#include <string>

namespace overdrive::hooks {

// Dense memory with elements, and nothing about the tensor that pack() could lose: no subclass, no functorch
// wrapper, not sparse, nested, mkldnn, quantised, meta, zero, copy-on-write or empty. Wrapped numbers are not
// packable either.
OVERDRIVE_API bool is_packable(const at::Tensor& tensor);

struct History {
  const base::NodePtr& node;  // of the tensor, and good as long as the tensor is; null for a leaf
  uint32_t output_nr;         // of the node
  bool parameter;             // a leaf that requires grad, or a view of one: it stays in memory anyhow
};
OVERDRIVE_API History history_of(const at::Tensor& tensor);

// Whether operators may write to the tensor without raising its version, so that equal versions do not mean
// equal memory. Batch norms write so to their running statistics, which a norm in eval mode saves and reads.
OVERDRIVE_API bool may_change_unseen(const at::Tensor& tensor, const History& history);

// Whether `node` fills tensors without history after it saved them, and leaves their version alone: a hook then
// packed other numbers than the operator used. rrelu in training mode is the one such operator: it draws its
// noise into a saved tensor. Nothing at the save tells this tensor from others, so the node gets an error when
// it unpacks. (Hooks of Python give a wrong gradient.)
bool fills_what_it_saved(const base::Node& node);
[[noreturn]] void refuse_filled_later(const base::Node& node, const std::string& hooks);

}  // namespace overdrive::hooks
