// An object that is told of the writes of its thread's operators to tensors, for the length of its life. Owned
// by the scope that it lives in. Operators reach it through kernels on a dispatch key that it includes for its
// thread: one for each operator whose schema says that it writes, and for batch norm, whose schema does not say
// it. All other operators fall through the key. The kernels are registered with the first observer and kept for
// good; an operator that is registered later gets its kernel with the next observer. Leaves out writes without
// an operator.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace overdrive::checkpoint {

class WriteObserver {
 public:
  WriteObserver(const WriteObserver&) = delete;
  WriteObserver& operator=(const WriteObserver&) = delete;

  // Before a write that records no gradient. The tensor has a storage and requires no gradient.
  virtual void will_write(const at::Tensor& tensor) = 0;
  // The observers of this thread, innermost first.
  static WriteObserver* innermost();
  WriteObserver* outer() const { return outer_; }
  // False in a backward that began after the observer.
  bool is_for_now() const;

 protected:
  WriteObserver();
  ~WriteObserver();

 private:
  WriteObserver* const outer_;
  const int graph_task_;
  const c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace overdrive::checkpoint
