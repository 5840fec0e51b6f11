#include "checkpoint/pipeline/transfer.h"

#include "checkpoint/region/tape.h"
#include "engine/base/no_destructor.h"
#include "engine/base/stream_mark.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace overdrive::checkpoint {

namespace {

// The host's copy is work on the source's current stream, and makes the target's wait for it.
at::Tensor copy(const at::Tensor& tensor, const at::Device& device) {
  if (tensor.is_cpu()) return tensor.to(device);
  static base::NoDestructor<base::SideStreams> copies;
  const c10::Device source = tensor.device();
  const c10::Stream aside = copies->of(source);
  base::wait_for(aside, c10::impl::VirtualGuardImpl(source.type()).getStream(source));
  const c10::StreamGuard stream(aside);
  base::note_use_here(tensor);
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
