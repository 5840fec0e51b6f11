#include "engine/base/stream_mark.h"

#include "engine/base/auxiliary_span.h"
#include "engine/base/no_destructor.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace overdrive::base {

using c10::impl::VirtualGuardImpl;

StreamMark StreamMark::here(c10::Device device) {
  return device.is_cpu() ? StreamMark() : of(current_stream(device));
}

StreamMark StreamMark::of(const c10::Stream& stream) {
  StreamMark mark;
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  mark.stream_ = stream.id();
  mark.event_ = std::move(event);
  mark.device_ = stream.device();
  return mark;
}

void StreamMark::wait() const {
  if (event_ != nullptr) wait_for(current_stream(*device_), *event_, stream_);
}

void wait_for(const c10::Stream& later, const c10::Event& event, c10::StreamId earlier) {
  const AuxiliarySpanScope span([&] {
    return AuxiliarySpan{.kind = AuxiliarySpan::Kind::kStreamWait,
                         .name = "stream wait",
                         .number = later.id(),
                         .other = earlier,
                         .device = static_cast<int8_t>(later.device_type()),
                         .device_index = later.device_index()};
  });
  event.block(later);
}

void wait_for(const c10::Stream& later, const c10::Stream& earlier) {
  if (later == earlier) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  wait_for(later, event, earlier.id());
}

void note_use_here(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  if (device.is_cpu() || !tensor.has_storage()) return;
  const VirtualGuardImpl guard(device.type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(device));
}

c10::Stream SideStreams::of(c10::Device device) {
  const MutexLock lock(mutex_);
  const std::pair key(device.type(), device.index());
  const auto found = streams_.find(key);
  if (found != streams_.end()) return found->second;
  return streams_.emplace(key, VirtualGuardImpl(device.type()).getNewStream(device)).first->second;
}

c10::Stream current_stream(c10::Device device) { return VirtualGuardImpl(device.type()).getStream(device); }

c10::Stream side_stream(c10::Device device) {
  static NoDestructor<SideStreams> streams;
  return streams->of(device);
}

}  // namespace overdrive::base
