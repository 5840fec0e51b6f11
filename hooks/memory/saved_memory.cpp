#include "hooks/memory/saved_memory.h"

#include "engine/base/auxiliary_span.h"
#include "hooks/interface/hook_calls.h"

#include <utility>

namespace overdrive::hooks {

using torch::autograd::impl::version_counter;

namespace {
SaveInfo without_node(SaveInfo info) {
  info.node = nullptr;  // good inside pack() only
  info.node_name = nullptr;
  return info;
}

int64_t bytes_of(const Packed& packed) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : packed.tensors) {
    if (tensor.defined() && tensor.has_storage()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

SavedMemory::SavedMemory(HooksPtr hooks, const at::Tensor& source, const Geometry& geometry,
                         engine::host::VersionCheck version, const SaveInfo& info)
    : hooks_(std::move(hooks)),
      geometry_(geometry),
      info_(without_node(info)),
      dtype_(source.dtype()),
      device_(source.device()),
      version_(std::move(version)) {}

bool SavedMemory::holds_exactly(const Geometry& other) const {
  if (other.dims == geometry_.dims) return other.offset == geometry_.offset;
  if (other.distinct() == other.numel()) return false;
  const Geometry once = other.each_once();  // as it was packed
  return once.dims == geometry_.dims && once.offset == geometry_.offset;
}

bool SavedMemory::contains(const Geometry& other) const {
  return holds_exactly(other) ||
         (other.offset >= geometry_.offset && other.end() <= geometry_.end() && geometry_.is_dense());
}

at::Tensor SavedMemory::looks() const {
  return at::empty({0}, at::TensorOptions().dtype(dtype_).device(device_));
}

Packed SavedMemory::pack(const at::Tensor& source, const SaveInfo& info) const {
  const c10::VariableVersion& counter = version_counter(source);
  const uint32_t before = counter.current_version();
  base::AuxiliarySpanScope span([this] {
    return base::AuxiliarySpan{
        .kind = base::AuxiliarySpan::Kind::kPack, .name = hooks_->name(), .bytes = bytes()};
  });
  Packed packed = hooks_->pack(source, info);
  if (base::AuxiliarySpan* work = span.work()) work->packed = bytes_of(packed);
  TORCH_CHECK(counter.current_version() == before, kPackWroteToItsInput, "The hook is ", hooks_->name(),
              ": let it work on a copy.");
  return packed;
}

at::Tensor SavedMemory::unpack(Packed& packed, base::Node* node) const {
  const InsideHook inside;
  const base::AuxiliarySpanScope span([&] {
    return base::AuxiliarySpan{.kind = base::AuxiliarySpan::Kind::kUnpack,
                               .name = hooks_->name(),
                               .bytes = bytes(),
                               .packed = bytes_of(packed)};
  });
  return checked_unpack(*hooks_, packed, UnpackInfo{.node = node, .save = info_},
                        {geometry_.sizes(), geometry_.strides(), dtype_, device_});
}

at::Tensor SavedMemory::cut(at::Tensor whole, const Geometry* part) const {
  const c10::VariableVersion& counter = version_.counter();
  const Geometry& wanted = part != nullptr ? *part : geometry_;
  if ((part == nullptr || wanted == geometry_) && !whole.requires_grad()) {
    if (engine::host::same_counter(version_counter(whole), counter)) return whole;
    if (whole.use_count() == 1) {  // made for us
      torch::autograd::impl::set_version_counter(whole, counter);
      return whole;
    }
  }
  Geometry place = wanted;
  place.offset = whole.storage_offset() + (wanted.offset - geometry_.offset);
  return view_over(whole, place, counter);
}

}  // namespace overdrive::hooks
