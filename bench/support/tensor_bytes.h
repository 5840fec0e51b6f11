// Counts the bytes of CPU tensors, by standing in front of LibTorch's CPU allocator while an object lives.
// Counts the whole process, so one measurement at a time; any thread may allocate meanwhile. Built and
// destroyed while no other thread computes. Does not see tensors that were allocated while no object lived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace overdrive::bench {

class TensorBytes {
 public:
  // A tensor's memory that was allocated, or freed (negative).
  struct Change {
    double seconds = 0;  // since the counter was built
    const void* memory = nullptr;
    int64_t bytes = 0;
  };

  // Keeps the first `most_changes` changes.
  explicit TensorBytes(size_t most_changes = 0);
  ~TensorBytes();
  TensorBytes(const TensorBytes&) = delete;
  TensorBytes& operator=(const TensorBytes&) = delete;

  // Alive now beyond what was alive when the counter was built: negative when more was freed than allocated.
  int64_t now() const;
  // The most that now() was since then, or since restart_peak(); at least its value at that moment.
  int64_t peak() const;
  void restart_peak();
  int64_t allocations() const;
  std::vector<Change> changes() const;

  // The peak of a call.
  template <typename Call>
  static int64_t peak_of(const Call& call) {
    const TensorBytes counted;
    call();
    return counted.peak();
  }

 private:
  int64_t alive_before_;
};

}  // namespace overdrive::bench
