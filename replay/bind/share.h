// A step in shares: steps that may run at the same time or in any order, and together do what the whole does.
// The arithmetic of an element is the same in a share, by the same loop of the same kernel. A share uses the
// state of its step, which outlives it, and sees the numbers that are set there. Any thread; a share is run by
// one at a time.
#pragma once

#include "replay/bind/step.h"
#include "replay/plan/dependencies.h"

#include <cstdint>

namespace overdrive::replay {

struct Share {
  Step step;
  // The bytes of this share alone.
  Touched touched;
};

// Where shares of so many elements begin, and the end: `count` of them at most, about equally large, each but
// the last a multiple of `grain`.
std::vector<int64_t> share_bounds(int64_t size, int64_t grain, int count);

// Whether no share touches what another one writes.
bool are_apart(const std::vector<Share>& shares);

// From the first byte of a matrix or of more dimensions to the last one. Strides are in bytes.
AddressRange hull(const void* begin, const int64_t* sizes, const int64_t* strides, size_t dimensions,
                  size_t element);

// Kernels take as many elements at once as a vector has, and those that are left over by another loop. At cuts
// of so many elements each stays in the loop where it was; a cut also keeps the place in a line of the cache.
constexpr int64_t kShareGrain = 64;
constexpr uintptr_t kShareAlignment = 64;

// A step over a range: work(begin, end) does a part of it, and work.touched(begin, end) says what that touches.
template <typename Work>
class RangeStep final : public Step::State {
 public:
  RangeStep(Work work, int64_t size, int64_t grain) : work_(std::move(work)), size_(size), grain_(grain) {}
  static void run(Step::State& state) {
    const auto& self = static_cast<const RangeStep&>(state);
    self.work_(0, self.size_);
  }
  std::vector<Share> shares(int count) const override {
    std::vector<Share> result;
    const std::vector<int64_t> bounds = share_bounds(size_, grain_, count);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const int64_t begin = bounds[i], end = bounds[i + 1];
      result.push_back({step_of([this, begin, end] { work_(begin, end); }), work_.touched(begin, end)});
    }
    return result;
  }

 private:
  const Work work_;
  const int64_t size_;
  const int64_t grain_;
};

template <typename Work>
Step range_step(Work work, int64_t size, int64_t grain) {
  using State = RangeStep<Work>;
  return Step(&State::run, std::make_unique<State>(std::move(work), size, grain));
}

}  // namespace overdrive::replay
