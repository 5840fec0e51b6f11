// Work of a backward that is no node: packing and unpacking of saved tensors, second runs of regions,
// micro-batches, waits of streams. Described to one listener of the process, a slot that a higher folder fills
// while somebody looks. Any thread. Without a listener each piece of work pays one load and one branch.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace overdrive::base {

struct AuxiliarySpan {
  enum class Kind : uint8_t { kPack, kUnpack, kFetch, kRecompute, kMicroBatch, kStreamWait };

  Kind kind;
  std::string name;
  int64_t bytes = -1;   // of the tensor as it was saved
  int64_t packed = -1;  // bytes of tensors that stand for it
  int64_t number = -1;  // of the region, the micro-batch, or the stream that waits
  int64_t other = -1;   // the stream that is waited for
  int8_t device = 0, device_index = -1;
  uint64_t link = 0;            // the same for a fetch and the unpack that takes its result; 0: none
  uint64_t begin = 0, end = 0;  // ticks of c10's approximate clock
  bool failed = false;
};

// On the thread of the work, at its end.
using AuxiliarySpanListener = void (*)(const AuxiliarySpan& work) noexcept;
inline std::atomic<AuxiliarySpanListener> auxiliary_span_listener{nullptr};

// Never used twice.
inline uint64_t next_link() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// One piece of work, from here to the end of the scope.
class AuxiliarySpanScope {
 public:
  // `describe` returns the AuxiliarySpan; called only while somebody listens.
  template <typename Describe>
  explicit AuxiliarySpanScope(Describe&& describe) {
    if (auxiliary_span_listener.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      begin(std::forward<Describe>(describe));
  }
  ~AuxiliarySpanScope() {
    if (work_.has_value()) [[unlikely]]
      report();
  }
  AuxiliarySpanScope(const AuxiliarySpanScope&) = delete;
  AuxiliarySpanScope& operator=(const AuxiliarySpanScope&) = delete;

  // Null while nobody listens.
  AuxiliarySpan* work() { return work_.has_value() ? &*work_ : nullptr; }
  void drop() { work_.reset(); }

 private:
  template <typename Describe>
  [[gnu::noinline]] void begin(Describe&& describe) {
    try {
      work_.emplace(describe());
    } catch (...) {  // of a hook's name(), or memory: the work itself goes on
      return;
    }
    exceptions_ = std::uncaught_exceptions();
    work_->begin = static_cast<uint64_t>(c10::getApproximateTime());
  }
  [[gnu::noinline]] void report() noexcept {
    work_->end = static_cast<uint64_t>(c10::getApproximateTime());
    work_->failed = std::uncaught_exceptions() > exceptions_;
    const AuxiliarySpanListener listener = auxiliary_span_listener.load(std::memory_order_acquire);
    if (listener != nullptr) listener(*work_);
  }

  std::optional<AuxiliarySpan> work_;
  int exceptions_ = 0;
};

}  // namespace overdrive::base
