#include "hooks/pack_unit.h"

#include "engine/counters.h"
#include "hooks/checked_unpack.h"
#include "hooks/inside_hook.h"
#include "hooks/version_check.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <utility>

namespace overdrive::hooks {

using engine::Count;
using torch::autograd::impl::version_counter;

// Held by whoever is unpacking, so that a unit may be replaced meanwhile.
struct PackUnit::Contents {
  Packed packed;
  base::StreamMark made;  // under a schedule: whoever unpacks may do so on another stream
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

PackUnit::PackUnit(HooksPtr hooks, const at::Tensor& source, const SaveInfo& info, Timing timing)
    : hooks_(std::move(hooks)),
      geometry_(Geometry::of(source)),
      info_(without_node(info)),
      dtype_(source.dtype()),
      device_(source.device()),
      keys_(source.key_set()),
      version_(version_counter(source).current_version()),
      source_(source.storage().getWeakStorageImpl()),
      prefetch_(timing.fetch_early ? std::make_unique<Prefetch>() : nullptr),
      saved_(timing.pack_later || timing.fetch_early ? base::StreamMark::here(device_) : base::StreamMark()) {
  if (timing.pack_later) {
    waiting_ = source;
  } else {
    contents_ = std::make_shared<Contents>(Contents{call_pack(*hooks_, source, info), {}});
    if (timing.fetch_early) contents_->made = base::StreamMark::here(device_);
  }
}

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
  at::Tensor waited;
  const base::MutexLock lock(mutex_);
  larger_ = std::move(larger);
  dropped = std::move(contents_);
  std::swap(waited, waiting_);
}

std::shared_ptr<PackUnit> PackUnit::larger() {
  const base::MutexLock lock(mutex_);
  return larger_;
}

at::Tensor PackUnit::fetch(const Geometry& wanted, const c10::VariableVersion& counter, base::Node* node) {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->fetch(wanted, counter, node);
  bool is_new = false;
  at::Tensor memory = whole(counter, node, is_new);
  if (is_new) remember(memory);
  return cut(std::move(memory), wanted, counter);
}

at::Tensor PackUnit::whole(const c10::VariableVersion& counter, base::Node* node, bool& is_new) {
  std::shared_ptr<Contents> contents;
  {
    base::MutexLock lock(mutex_);
    if (waiting_.defined()) return waiting_;
    if (at::Tensor alive = still_alive(counter); alive.defined()) return alive;
    contents = contents_;
  }
  if (contents == nullptr) {  // a larger unit came just now
    const std::shared_ptr<PackUnit> other = larger();
    TORCH_INTERNAL_ASSERT(other != nullptr, "a tensor saved under ", hooks_->name(), " is not there.");
    return other->fetch(geometry_, counter, node);
  }
  is_new = true;
  if (at::Tensor early = take_fetched(); early.defined()) return early;
  return unpack(*contents, node);
}

// Only memory that unpack() made: the tensor that was saved is its program's, and may be written to.
void PackUnit::remember(const at::Tensor& fetched) {
  const c10::Storage& storage = fetched.storage();
  if (storage.unsafeGetStorageImpl() == source_._unsafe_get_target()) return;
  const base::MutexLock lock(mutex_);
  if (!shared_) return;
  fetched_ = storage.getWeakStorageImpl();
  fetched_offset_ = fetched.storage_offset();
}

at::Tensor PackUnit::still_alive(const c10::VariableVersion& counter) {
  if (!shared_) return {};
  c10::intrusive_ptr<c10::StorageImpl> storage = fetched_.lock();
  if (!storage) return {};
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), keys_, dtype_);
  impl->set_version_counter(counter);
  impl->set_sizes_and_strides(geometry_.sizes, geometry_.strides, fetched_offset_);
  return at::Tensor(std::move(impl));
}

at::Tensor PackUnit::unpack(Contents& contents, base::Node* node) {
  const InsideHook inside;
  contents.made.wait();
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

// --- packed later ---

void PackUnit::pack_waiting() {
  at::Tensor source;  // goes without the lock
  {
    const base::MutexLock lock(mutex_);
    source = waiting_;
    if (!source.defined()) return;
    if (version_counter(source).current_version() != version_) {
      waiting_.reset();
      return;
    }
  }
  auto contents = std::make_shared<Contents>();
  {
    const c10::OptionalDeviceGuard device(device_of_accelerator());
    saved_.wait();
    contents->packed = call_pack(*hooks_, source, info_);
    contents->made = base::StreamMark::here(device_);
    base::note_use_here(source);
  }
  engine::count(Count::kPackedLater);
  at::Tensor packed;
  const base::MutexLock lock(mutex_);
  if (!waiting_.defined()) return;  // a larger unit came
  contents_ = std::move(contents);
  std::swap(packed, waiting_);
}

bool PackUnit::is_lost() {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->is_lost();
  const base::MutexLock lock(mutex_);
  if (waiting_.defined()) return version_counter(waiting_).current_version() != version_;
  return contents_ == nullptr && larger_ == nullptr;
}

// --- fetched early ---

bool PackUnit::announce_fetch() {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->announce_fetch();
  if (prefetch_ == nullptr) return false;
  {
    const base::MutexLock lock(mutex_);
    if (contents_ == nullptr) return false;
    if (shared_ && fetched_.use_count() != 0) return false;  // somebody has it
  }
  return prefetch_->announce();
}

void PackUnit::fetch_ahead() {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->fetch_ahead();
  if (prefetch_ == nullptr) return;
  prefetch_->run([this] { return unpack_ahead(); });
}

// On a stream beside the program's, which goes on meanwhile.
Prefetch::Fetched PackUnit::unpack_ahead() {
  std::shared_ptr<Contents> contents;
  {
    const base::MutexLock lock(mutex_);
    contents = contents_;
  }
  if (contents == nullptr) return {};
  const std::optional<c10::Device> device = device_of_accelerator();
  const c10::OptionalStreamGuard stream(device ? std::optional(base::side_stream(*device)) : std::nullopt);
  const c10::NoGradGuard no_grad;
  at::Tensor memory = unpack(*contents, nullptr);
  for (const at::Tensor& part : contents->packed.tensors) {
    if (part.defined()) base::note_use_here(part);
  }
  engine::count(Count::kAheadBytes, memory.nbytes());
  return {std::move(memory), base::StreamMark::here(device_)};
}

void PackUnit::forget_fetched() {
  if (const std::shared_ptr<PackUnit> other = larger()) other->forget_fetched();
  if (prefetch_ != nullptr && prefetch_->forget()) engine::count(Count::kAheadUnused);
}

at::Tensor PackUnit::take_fetched() {
  if (prefetch_ == nullptr) return {};
  Prefetch::Result result = prefetch_->take();
  switch (result.came) {
    case Prefetch::Came::kNot:
      engine::count(Count::kAheadMisses);
      break;
    case Prefetch::Came::kInTime:
      engine::count(Count::kAheadHits);
      break;
    case Prefetch::Came::kLate:
      engine::count(Count::kAheadWaits);
      break;
  }
  if (result.fetched.tensor.defined()) {
    result.fetched.ready.wait();
    base::note_use_here(result.fetched.tensor);
  }
  return std::move(result.fetched.tensor);
}

}  // namespace overdrive::hooks
