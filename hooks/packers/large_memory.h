// Memory for tensors that a packer makes on the CPU: without the dispatcher, so in every mode of the thread.
// Large pieces come fresh from the system, and finding and clearing their pages costs as much as filling them.
// So they ask for huge pages, and a few idle ones are kept for the next. Owned by a packer; pieces may outlive
// it. Any thread.
#pragma once

#include "engine/base/process_mutex.h"
#include "engine/base/torch_types.h"

#include <map>
#include <memory>

namespace overdrive::hooks {

class LargeMemory : public std::enable_shared_from_this<LargeMemory> {
 public:
  // From here on a piece is large.
  static constexpr int64_t kLarge = int64_t{4} << 20;

  // Keeps so many idle bytes; pieces that come back beyond them are freed.
  explicit LargeMemory(int64_t most_idle_bytes) : most_idle_bytes_(most_idle_bytes) {}

  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType type) OVERDRIVE_EXCLUDES(mutex_);
  at::Tensor tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type)
      OVERDRIVE_EXCLUDES(mutex_);

 private:
  struct Borrowed;

  at::Tensor on_piece(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, int64_t bytes);
  c10::DataPtr take(int64_t bytes) OVERDRIVE_EXCLUDES(mutex_);
  void give_back(c10::DataPtr piece, int64_t bytes) noexcept OVERDRIVE_EXCLUDES(mutex_);

  const int64_t most_idle_bytes_;
  base::ProcessMutex mutex_{"large packed memory"};
  std::multimap<int64_t, c10::DataPtr> idle_ OVERDRIVE_GUARDED_BY(mutex_);  // by size
  int64_t idle_bytes_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace overdrive::hooks
