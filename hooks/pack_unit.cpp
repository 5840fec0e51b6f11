#include "hooks/pack_unit.h"

#include "hooks/checked_unpack.h"
#include "hooks/inside_hook.h"
#include "hooks/version_check.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace overdrive::hooks {

using torch::autograd::impl::version_counter;

// Held by whoever is unpacking, so that a unit may be replaced meanwhile.
struct PackUnit::Contents {
  Packed packed;
};

namespace {

Packed call_pack(SavedTensorHooks& hooks, const at::Tensor& source, const SaveInfo& info) {
  const InsideHook inside;
  const c10::NoGradGuard no_grad;
  const c10::VariableVersion counter = version_counter(source);
  const uint32_t before = counter.current_version();
  Packed packed = hooks.pack(source, info);
  TORCH_CHECK(counter.current_version() == before, kPackWroteToItsInput, "The hook is ", hooks.name(),
              ": let it work on a copy.");
  return packed;
}

SaveInfo without_node(SaveInfo info) {
  info.node = nullptr;  // good inside pack() only
  return info;
}

}  // namespace

PackUnit::PackUnit(HooksPtr hooks, const at::Tensor& source, const SaveInfo& info)
    : hooks_(std::move(hooks)),
      geometry_(Geometry::of(source)),
      info_(without_node(info)),
      dtype_(source.dtype()),
      device_(source.device()),
      keys_(source.key_set()),
      contents_(std::make_shared<Contents>(Contents{call_pack(*hooks_, source, info)})) {}

bool PackUnit::holds_exactly(const Geometry& other) const {
  if (other.sizes == geometry_.sizes && other.strides == geometry_.strides)
    return other.offset == geometry_.offset;
  // What repeats elements was packed as a row.
  return other.extent() < other.numel() && geometry_ == Geometry::row(other.offset, other.extent());
}

bool PackUnit::contains(const Geometry& other) const {
  return holds_exactly(other) ||
         (other.offset >= geometry_.offset && other.end() <= geometry_.end() && geometry_.is_dense());
}

bool PackUnit::overlaps(const Geometry& other) const {
  return other.offset < geometry_.end() && geometry_.offset < other.end();
}

at::Tensor PackUnit::looks() const { return at::empty({0}, at::TensorOptions().dtype(dtype_).device(device_)); }

void PackUnit::share() {
  base::MutexLock lock(mutex_);
  shared_ = true;
}

void PackUnit::replace_by(std::shared_ptr<PackUnit> larger) {
  std::shared_ptr<Contents> dropped;  // without the lock
  const base::MutexLock lock(mutex_);
  larger_ = std::move(larger);
  dropped = std::move(contents_);
}

at::Tensor PackUnit::fetch(const Geometry& wanted, const c10::VariableVersion& counter, base::Node* node) {
  std::shared_ptr<Contents> contents;
  std::shared_ptr<PackUnit> larger;
  bool shared = false;
  {
    base::MutexLock lock(mutex_);
    larger = larger_;
    shared = shared_;
    if (shared && !larger) {
      if (at::Tensor whole = still_alive(counter); whole.defined())
        return cut(std::move(whole), wanted, counter);
    }
    contents = contents_;
  }
  if (larger) return larger->fetch(wanted, counter, node);
  at::Tensor whole = unpack(*contents, node);
  if (shared) {
    base::MutexLock lock(mutex_);
    fetched_ = whole.storage().getWeakStorageImpl();
    fetched_offset_ = whole.storage_offset();
  }
  return cut(std::move(whole), wanted, counter);
}

at::Tensor PackUnit::still_alive(const c10::VariableVersion& counter) {
  c10::intrusive_ptr<c10::StorageImpl> storage = fetched_.lock();
  if (!storage) return {};
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), keys_, dtype_);
  impl->set_version_counter(counter);
  impl->set_sizes_and_strides(geometry_.sizes, geometry_.strides, fetched_offset_);
  return at::Tensor(std::move(impl));
}

at::Tensor PackUnit::unpack(Contents& contents, base::Node* node) {
  const InsideHook inside;
  return checked_unpack(*hooks_, contents.packed, UnpackInfo{.node = node, .save = info_},
                        {geometry_.sizes, geometry_.strides, dtype_, device_});
}

at::Tensor PackUnit::cut(at::Tensor whole, const Geometry& wanted, const c10::VariableVersion& counter) const {
  if (wanted == geometry_ && !whole.requires_grad()) {
    if (same_counter(version_counter(whole), counter)) return whole;
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
