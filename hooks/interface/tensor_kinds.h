// Which saved tensors are for hooks. Any thread; looks and changes nothing.
#pragma once

#include "engine/base/export.h"
#include "engine/base/torch_types.h"

namespace overdrive::hooks {

// Dense memory with elements in it, and nothing about the tensor that pack() could lose: no subclass, no
// functorch wrapper, not sparse, nested, mkldnn, quantised, meta, zero, copy-on-write or empty, and with a
// storage that is really there. A number in a tensor's clothes (wrapped) is not either.
OVERDRIVE_API bool is_packable(const at::Tensor& tensor);

// Where a tensor comes from.
struct History {
  const base::NodePtr& node;  // of the tensor, and good as long as it is; null for a leaf
  uint32_t output_nr;         // of the node
  bool parameter;             // a leaf that requires grad, or a view of one: it stays in memory anyhow
};
OVERDRIVE_API History history_of(const at::Tensor& tensor);

// Whether operators may write to the tensor without raising its version, so that equal versions do not say
// equal memory. Batch norms do so to their running statistics, which a norm in eval mode saves and reads.
OVERDRIVE_API bool may_change_unseen(const at::Tensor& tensor, const History& history);

}  // namespace overdrive::hooks
