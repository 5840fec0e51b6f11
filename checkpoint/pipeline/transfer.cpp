#include "checkpoint/pipeline/transfer.h"

#include "checkpoint/tape.h"
#include "engine/base/mutex.h"
#include "engine/base/no_destructor.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// One for each device and for the life of the process: streams are taken from pools and never given back.
class CopyStreams {
 public:
  static c10::Stream of(const at::Device& device) {
    static base::NoDestructor<CopyStreams> all;
    const base::MutexLock lock(all->mutex_);
    const auto key = std::pair(device.type(), device.index());
    auto found = all->streams_.find(key);
    if (found == all->streams_.end()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      found = all->streams_.emplace(key, guard.getNewStream(device)).first;
    }
    return found->second;
  }

 private:
  base::Mutex mutex_;
  std::map<std::pair<at::DeviceType, at::DeviceIndex>, c10::Stream> streams_ OVERDRIVE_GUARDED_BY(mutex_);
};

// The host's copy is work on the source's current stream, and makes the target's wait for it.
at::Tensor copy(const at::Tensor& tensor, const at::Device& device) {
  if (tensor.is_cpu()) return tensor.to(device);
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  const c10::Stream now = guard.getStream(tensor.device()), aside = CopyStreams::of(tensor.device());
  c10::Event made(tensor.device().type());
  made.record(now);
  made.block(aside);
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), aside);
  const c10::StreamGuard stream(aside);
  return tensor.to(device);
}

class Transfer final : public base::Node {
 public:
  Transfer(const at::Device& back_to, base::edge_list next) : Node(std::move(next)), back_to_(back_to) {}

  std::string name() const override { return "Transfer"; }
  base::variable_list apply(base::variable_list&& gradients) override {
    return {gradients[0].defined() ? transfer(gradients[0], back_to_) : at::Tensor()};
  }

 private:
  const at::Device back_to_;
};

}  // namespace

at::Tensor transfer(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device) return tensor;
  at::Tensor moved;
  {
    const at::NoGradGuard no_grad;
    moved = copy(tensor, device);
  }
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) return moved;
  return with_history(moved,
                      base::make_node<Transfer>(tensor.device(),
                                                base::edge_list{torch::autograd::impl::gradient_edge(tensor)}));
}

}  // namespace overdrive::checkpoint
