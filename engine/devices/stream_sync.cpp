#include "engine/devices/stream_sync.h"

#include "engine/base/stream_mark.h"
#include "engine/host/host_rules.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <atomic>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// Older versions of the host know no such override.
template <typename Buffer>
std::optional<c10::Stream> overridden_stream(const Buffer& gradients) {
  if constexpr (requires { gradients.opt_overridden_consumer_stream; }) {
    return gradients.opt_overridden_consumer_stream;
  } else {
    return std::nullopt;
  }
}

// Older versions of the host do not warn.
template <typename Context>
bool warns_of_leaf_streams(const Context& context) {
  if constexpr (requires { context.warnOnAccumulateGradStreamMismatch(); }) {
    return context.warnOnAccumulateGradStreamMismatch();
  } else {
    return false;
  }
}

}  // namespace

bool is_on_accelerator(const at::Tensor& tensor) {
  const c10::DeviceType type = tensor.device().type();
  return type != c10::kCPU && at::accelerator::isAccelerator(type);
}

std::optional<c10::Stream> stream_of_root_gradient(const at::Tensor& gradient) {
  if (!gradient.defined() || !is_on_accelerator(gradient)) return std::nullopt;
  return c10::impl::getDeviceGuardImpl(gradient.device().type())->getStream(gradient.device());
}

std::optional<c10::Stream> stream_of(Node& node, const InputBuffer* gradients) {
  if (gradients != nullptr) {
    if (std::optional<c10::Stream> stream = overridden_stream(*gradients)) return stream;
  }
  return node.stream();
}

void name_leaf_on_another_stream(const Node& node, const std::optional<c10::Stream>& producer,
                                 const std::optional<c10::Stream>& consumer) {
  if (!producer || !consumer || *producer == *consumer) [[likely]]
    return;
  const auto* accumulator = dynamic_cast<const AccumulateGrad*>(&node);
  if (accumulator == nullptr || !warns_of_leaf_streams(at::globalContext())) return;
  static std::atomic_flag said;
  if (said.test_and_set(std::memory_order_relaxed)) return;
  const at::Tensor& leaf = accumulator->variable;
  TORCH_WARN("Overdrive: the leaf of that warning is ", leaf.name().empty() ? "" : leaf.name() + ", ",
             leaf.toString(), leaf.sizes(), " on ", leaf.device(),
             ". Its AccumulateGrad node was made on stream ", consumer->id(),
             ", and its gradient comes on stream ", producer->id(), ".");
}

void wait_for_gradients(Node& node, const std::optional<c10::Stream>& stream, InputBuffer& gradients) {
  for (size_t i = 0; i < gradients.buffer.size(); ++i) {
    if (!gradients.buffer[i].defined() || !gradients.ready_events[i].has_value()) continue;
    TORCH_CHECK(stream.has_value(), "gradient ", i, " of ", node.name(), " is on ",
                gradients.buffer[i].device(),
                ", but no input of the node is on an accelerator, so it has no stream to use the gradient on.");
    if (*stream == *gradients.ready_streams[i]) continue;
    base::wait_for(*stream, *gradients.ready_events[i], gradients.ready_streams[i]->id());
  }
}

CurrentDevice::CurrentDevice(c10::DeviceType type)
    : guard_(c10::impl::getDeviceGuardImpl(type)), device_(guard_->getDevice()) {}

CurrentDevice::CurrentDevice(c10::Device device)
    : guard_(c10::impl::getDeviceGuardImpl(device.type())), device_(device) {}

void CurrentDevice::restore() const {
  if (guard_->getDevice() != device_) guard_->setDevice(device_);
}

CallerStreams::CallerStreams() {
  const std::optional<c10::DeviceType> type = at::getAccelerator();
  if (!type.has_value()) return;
  guard_ = c10::impl::getDeviceGuardImpl(*type);
  const at::AcceleratorHooksInterface& hooks = at::globalContext().getAcceleratorHooksInterface(*type);
  for (c10::DeviceIndex i = 0; i < guard_->deviceCount(); ++i) {
    // Asking for a stream would make a context where there is none.
    if (hooks.hasPrimaryContext(i)) streams_.push_back(guard_->getStream({*type, i}));
  }
}

void CallerStreams::add_leaf(const c10::Stream& stream) {
  base::MutexLock lock(mutex_);
  if (std::find(leaves_.begin(), leaves_.end(), stream) == leaves_.end()) leaves_.push_back(stream);
}

void CallerStreams::wait_for_leaves() {
  std::vector<c10::Stream> leaves;
  {
    base::MutexLock lock(mutex_);
    leaves.swap(leaves_);
  }
  for (const c10::Stream& leaf : leaves) {
    const auto same_device = [&](const c10::Stream& stream) { return stream.device() == leaf.device(); };
    const auto noted = std::find_if(streams_.begin(), streams_.end(), same_device);
    // A device that came into use during the backward only.
    const c10::Stream caller = noted != streams_.end() ? *noted : guard_->getStream(leaf.device());
    if (host::may_wait_for_leaf(caller, leaf)) base::wait_for(caller, leaf);
  }
}

void CallerStreams::restore() const {
  for (const c10::Stream& stream : streams_) {
    if (guard_->getStream(stream.device()) != stream) guard_->exchangeStream(stream);
  }
}

}  // namespace overdrive::engine
