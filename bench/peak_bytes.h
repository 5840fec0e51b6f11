// The most bytes of tensor memory held at once while a call runs, beyond what was held
// before it. Counts CPU tensors of the calling thread, by the reports that LibTorch's
// allocator makes to a profiler; not to be used inside one.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace overdrive::bench {

class PeakBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  template <typename Call>
  static int64_t of(const Call& call) {
    auto meter = std::make_shared<PeakBytes>();
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    call();
    return meter->peak_;
  }

 private:
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

}  // namespace overdrive::bench
