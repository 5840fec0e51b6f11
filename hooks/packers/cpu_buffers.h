// CPU memory for copies from and to accelerators: page-locked where the accelerator has an allocator for that,
// and used again. Owned by a packer and by its packed tensors. Any thread.
//
// A buffer may come back while a copy from or to it is still under way, so it comes with the stream of its last
// copy. The next user's stream waits for that one.
#pragma once

#include "engine/base/process_mutex.h"
#include "engine/base/torch_types.h"

#include <c10/core/Stream.h>

#include <map>
#include <optional>

namespace overdrive::hooks {

struct CpuBuffer {
  at::Tensor bytes;  // a row of bytes, at least as many as were asked for
  std::optional<c10::Stream> last_copy;
};

class CpuBuffers {
 public:
  // Keeps so many idle bytes; buffers that come back beyond them are freed.
  explicit CpuBuffers(int64_t most_idle_bytes) : most_idle_bytes_(most_idle_bytes) {}

  // For copies from and to this kind of accelerator.
  CpuBuffer take(int64_t bytes, c10::DeviceType accelerator) OVERDRIVE_EXCLUDES(mutex_);
  void give_back(CpuBuffer buffer) noexcept OVERDRIVE_EXCLUDES(mutex_);

 private:
  const int64_t most_idle_bytes_;
  base::ProcessMutex mutex_{"offloaded buffers"};
  std::multimap<int64_t, CpuBuffer> idle_ OVERDRIVE_GUARDED_BY(mutex_);  // by size
  int64_t idle_bytes_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
