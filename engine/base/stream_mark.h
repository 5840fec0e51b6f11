// The order of streams when work on a tensor continues on another thread, or later: the stream of the next user
// waits for the work on the stream of the last user. Does nothing on the CPU. Values; any thread.
#pragma once

#include "engine/base/process_mutex.h"
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
  // Marks the present work on this thread's current stream of the device.
  static StreamMark here(c10::Device device);
  // Marks the present work on any stream.
  static StreamMark of(const c10::Stream& stream);
  // Makes this thread's current stream of the device wait for the marked work.
  void wait() const;

 private:
  std::shared_ptr<const c10::Event> event_;  // null: nothing to wait for
  c10::StreamId stream_ = 0;                 // with the work
  std::optional<c10::Device> device_;
};

// Makes `later` wait for the event of work on the stream `earlier`.
void wait_for(const c10::Stream& later, const c10::Event& event, c10::StreamId earlier);
// Makes `later` wait for the present work on `earlier`.
void wait_for(const c10::Stream& later, const c10::Stream& earlier);
// Tells the allocator that the current stream uses the tensor's memory: freed memory is used again only after
// the present work on this stream.
void note_use_here(const at::Tensor& tensor);
// One stream for each device, never the default stream, the same on each call. Streams come from pools and
// never return, so an object of this class lives as long as the process. Any thread.
class SideStreams {
 public:
  c10::Stream of(c10::Device device) OVERDRIVE_EXCLUDES(mutex_);

 private:
  ProcessMutex mutex_{"side streams"};
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> streams_ OVERDRIVE_GUARDED_BY(mutex_);
};

// This thread's current stream of a device that is not the CPU.
c10::Stream current_stream(c10::Device device);

// The shared side stream of a device: hooks fetch and copy on this stream.
c10::Stream side_stream(c10::Device device);

}  // namespace overdrive::base
