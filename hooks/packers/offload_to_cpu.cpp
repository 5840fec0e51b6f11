#include "hooks/packers/offload_to_cpu.h"

#include "engine/base/stream_mark.h"
#include "engine/base/torch_types.h"
#include "engine/host/version_check.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/packers/cpu_buffers.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <utility>

namespace overdrive::hooks {
namespace {
// A tensor on its way to CPU memory, or there.
class Offloaded {
 public:
  Offloaded(const at::Tensor& tensor, std::shared_ptr<CpuBuffers> buffers)
      : device_(tensor.device()),
        copies_(base::side_stream(device_)),
        version_(tensor),
        buffers_(std::move(buffers)),
        buffer_(buffers_->take(static_cast<int64_t>(tensor.nbytes()), device_.type())),
        on_cpu_(cpu_tensor(tensor)) {
    base::wait_for(copies_, compute_stream());
    if (buffer_.last_copy) base::wait_for(copies_, *buffer_.last_copy);
    buffer_.last_copy = copies_;
    const c10::StreamGuard on_copies(copies_);
    on_cpu_.copy_(tensor, /*non_blocking=*/true);
    base::note_use_here(tensor);
  }
  ~Offloaded() {
    on_cpu_.reset();
    buffers_->give_back(std::move(buffer_));
  }
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;

  at::Tensor back() const {
    // The copy runs beside the program, so it may have read before the change or after it.
    TORCH_CHECK(version_.is_current(), "A tensor of sizes ", on_cpu_.sizes(), " on ", device_,
                " was changed in place after it was saved, so what offload_to_cpu copied is of no use.");
    const c10::Stream compute = compute_stream();
    at::Tensor result;
    {
      const c10::StreamGuard on_copies(copies_);
      result = at::empty_strided(on_cpu_.sizes(), on_cpu_.strides(), on_cpu_.options().device(device_));
      result.copy_(on_cpu_, /*non_blocking=*/true);
    }
    base::wait_for(compute, copies_);
    base::note_use_here(result);
    return result;
  }

 private:
  c10::Stream compute_stream() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

  // Over the buffer, with the strides of `like` where it has no gaps.
  at::Tensor cpu_tensor(const at::Tensor& like) const {
    const at::Tensor row =
        buffer_.bytes.narrow(0, 0, static_cast<int64_t>(like.nbytes())).view(like.scalar_type());
    return like.is_non_overlapping_and_dense() ? row.as_strided(like.sizes(), like.strides())
                                               : row.view(like.sizes());
  }

  const c10::Device device_;
  const c10::Stream copies_;
  const engine::host::VersionCheck version_;
  const std::shared_ptr<CpuBuffers> buffers_;
  CpuBuffer buffer_;
  at::Tensor on_cpu_;
};

class OffloadToCpu final : public SavedTensorHooks {
 public:
  explicit OffloadToCpu(const OffloadOptions& options)
      : options_(options), buffers_(std::make_shared<CpuBuffers>(options.most_idle_bytes)) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo&) override {
    if (tensor.device().is_cpu()) return {.tensors = {tensor}, .state = {}};
    return {.tensors = {}, .state = std::make_shared<Offloaded>(tensor, buffers_)};
  }
  at::Tensor unpack(Packed& packed, const UnpackInfo&) override {
    if (!packed.tensors.empty()) return packed.tensors[0];
    return std::any_cast<const std::shared_ptr<Offloaded>&>(packed.state)->back();
  }
  bool wants(const at::Tensor& tensor, const SaveInfo& info) override {
    const c10::DeviceType type = tensor.device().type();
    if (type == c10::kCPU) warn_of_cpu_tensor();
    return type != c10::kCPU && at::accelerator::isAccelerator(type) && info.bytes >= options_.min_bytes;
  }
  bool lossless() const override { return true; }
  std::string name() const override { return "offload_to_cpu"; }

 private:
  void warn_of_cpu_tensor() {
    if (warned_.exchange(true, std::memory_order_relaxed)) return;
    TORCH_WARN(
        "offload_to_cpu: there is nothing to do for tensors that are on the CPU already; they stay. To make "
        "them smaller take quantise(), to get them out of memory spill_to_disk().");
  }

  const OffloadOptions options_;
  const std::shared_ptr<CpuBuffers> buffers_;
  std::atomic<bool> warned_{false};
};

}  // namespace

HooksPtr offload_to_cpu(OffloadOptions options) {
  check_not_negative("offload_to_cpu", "min_bytes", options.min_bytes);
  check_not_negative("offload_to_cpu", "most_idle_bytes", options.most_idle_bytes);
  return std::make_shared<OffloadToCpu>(options);
}

}  // namespace overdrive::hooks
