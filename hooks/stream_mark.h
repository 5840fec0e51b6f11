// The order of streams when a hook is called on another thread, or later, than the tensor's own: whoever takes
// over makes its stream wait for what was on the other's. Nothing on the CPU. Values; any thread.
#pragma once

#include "engine/base/torch_types.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace overdrive::hooks {

class StreamMark {
 public:
  StreamMark() = default;
  // What is on the device's current stream of this thread now.
  static StreamMark here(c10::Device device);
  // The device's current stream of this thread goes on after that.
  void wait() const;

 private:
  std::shared_ptr<const c10::Event> event_;  // null: nothing to wait for
  std::optional<c10::Device> device_;
};

// Makes `later` wait for all that is on `earlier` now.
void wait_for(const c10::Stream& later, const c10::Stream& earlier);
// The memory must not be used again, once it is freed, before what the current stream does with it now.
void note_use_here(const at::Tensor& tensor);
// A stream of the device that is nobody's default, the same each time.
c10::Stream side_stream(c10::Device device);

}  // namespace overdrive::hooks
