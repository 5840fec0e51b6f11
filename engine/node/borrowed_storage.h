// The memory that saved-tensor hooks gave to the node that runs (Note [Borrowed storage]). One object for each
// call of a node, on the stack of its thread; the objects nest. Copies gradients, and decides nothing else.
//
// Note [Borrowed storage]: a node may return a saved tensor as a gradient. Without hooks the graph holds that
// tensor too, so AccumulateGrad sees a second owner and makes a copy. A tensor from an unpack hook has one
// owner, the node, but its memory may belong to the program, to other nodes or to the hook. A leaf would take
// the tensor over as its gradient, and zeroing the gradient would change them all. So a gradient in such memory
// is copied when the node returns.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/util/SmallVector.h>

#include <atomic>

namespace overdrive::engine {

class BorrowedStorage {
 public:
  // Whether hooks of ours ever packed anything: before that there is nothing to look for.
  static bool in_use() { return ever_used.load(std::memory_order_relaxed); }
  static void use() {
    if (!in_use()) ever_used.store(true, std::memory_order_relaxed);
  }

  // `given`: the gradients that the node gets. The node may hand on their memory.
  explicit BorrowedStorage(const base::variable_list& given);
  ~BorrowedStorage();
  BorrowedStorage(const BorrowedStorage&) = delete;
  BorrowedStorage& operator=(const BorrowedStorage&) = delete;

  // The node that runs on this thread, if one does, got this.
  static void note(const at::Tensor& tensor);
  // Replaces gradients in borrowed storage by copies.
  void keep_out_of(base::variable_list& gradients) const;

 private:
  static std::atomic<bool> ever_used;
  // Addresses, for comparison only. When another storage gets the address of a freed one, a copy too many is
  // made.
  using Storages = c10::SmallVector<const c10::StorageImpl*, 4>;
  Storages given_;
  Storages borrowed_;
  BorrowedStorage* const around_;
};

}  // namespace overdrive::engine
