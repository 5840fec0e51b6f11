// Memory that saved-tensor hooks gave to the node that runs. A node may return what it saved as a gradient.
// Without hooks others hold that very tensor, so whoever gets the gradient makes a copy. What a hook gives is a
// tensor of the node's own over memory, and with a version, that the program, other nodes or the hook have too:
// a leaf would take it over as its gradient, and zeroing that would change all of them. So such gradients are
// copied when the node returns. One for each call of a node, on its thread's stack; they nest.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/util/SmallVector.h>

#include <atomic>

namespace overdrive::engine {

class LentMemory {
 public:
  // Whether hooks of ours ever packed anything: before that there is nothing to look for.
  static bool in_use() { return ever_used.load(std::memory_order_relaxed); }
  static void use() {
    if (!in_use()) ever_used.store(true, std::memory_order_relaxed);
  }

  // `given`: the gradients that the node gets. What is memory of one of those may be handed on.
  explicit LentMemory(const base::variable_list& given);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // The node that runs on this thread, if one does, got this.
  static void note(const at::Tensor& tensor);
  // Puts copies in the place of those that are such memory.
  void keep_out_of(base::variable_list& gradients) const;

 private:
  static std::atomic<bool> ever_used;
  // Addresses, to compare with: that of memory which is gone costs a copy when another has got it.
  using Storages = c10::SmallVector<const c10::StorageImpl*, 4>;
  Storages given_;
  Storages lent_;
  LentMemory* const around_;
};

}  // namespace overdrive::engine
