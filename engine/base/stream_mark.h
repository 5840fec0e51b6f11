// The order of streams when work on a tensor goes on upon another thread, or later: whoever takes over makes
// its stream wait for what was on the other's. Nothing on the CPU. Values; any thread.
#pragma once

#include "engine/base/mutex.h"
#include "engine/base/torch_types.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace overdrive::base {

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
// A stream for each device, nobody's default, the same each time: streams are taken from pools and never given
// back, so this lives as long as the process. Any thread.
class SideStreams {
 public:
  c10::Stream of(c10::Device device) OVERDRIVE_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> streams_ OVERDRIVE_GUARDED_BY(mutex_);
};

// One for all who want no stream of their own: hooks fetch and copy on it.
c10::Stream side_stream(c10::Device device);

}  // namespace overdrive::base
