// The most bytes of activations that lived at once in a training step: tensor memory that the step allocated,
// the gradients of parameters left out, which live with and without checkpointing. Counts CPU tensors of the
// calling thread, by the reports that LibTorch's allocator makes to a profiler; not to be used inside one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace overdrive::bench {

class ActivationBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* memory, int64_t bytes, size_t, size_t, c10::Device) override {
    events_.push_back({memory, bytes});
  }
  bool memoryProfilingEnabled() const override { return true; }

  // `step` leaves its gradients in the parameters.
  template <typename Step>
  static int64_t peak_of(const Step& step, const std::vector<at::Tensor>& parameters) {
    auto meter = std::make_shared<ActivationBytes>();
    {
      c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      step();
    }
    return meter->peak_without_gradients(parameters);
  }

 private:
  struct Event {
    void* memory;
    int64_t bytes;  // negative: freed
  };

  int64_t peak_without_gradients(const std::vector<at::Tensor>& parameters) const {
    std::unordered_map<void*, size_t> last;  // allocation of an address
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].bytes > 0) last[events_[i].memory] = i;
    }
    std::vector<bool> is_gradient(events_.size());
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.grad().defined()) continue;
      const auto made = last.find(parameter.grad().storage().mutable_data());
      if (made != last.end()) is_gradient[made->second] = true;
    }
    std::unordered_map<void*, int64_t> alive;  // what was there before the step is not
    int64_t held = 0, peak = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
      const auto [memory, bytes] = events_[i];
      if (bytes > 0 && !is_gradient[i]) {
        held += alive[memory] = bytes;
      } else if (const auto gone = alive.find(memory); bytes < 0 && gone != alive.end()) {
        held -= gone->second;
        alive.erase(gone);
      }
      peak = std::max(peak, held);
    }
    return peak;
  }

  std::vector<Event> events_;
};

}  // namespace overdrive::bench
