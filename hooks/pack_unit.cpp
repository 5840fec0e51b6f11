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

namespace {

Packed call_pack(SavedTensorHooks& hooks, const at::Tensor& source, const SaveInfo& info) {
  const c10::VariableVersion& counter = version_counter(source);
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

// While one lives, what is packed stays, even when a larger unit takes its place.
class PackUnit::Reading {
 public:
  explicit Reading(PackUnit& unit) : unit_(unit) { ++unit_.readers_; }
  ~Reading() {
    if (unit_.readers_.fetch_sub(1) == 1 && unit_.is_replaced_) unit_.drop_packed();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  PackUnit& unit_;
};

PackUnit::PackUnit(HooksPtr hooks, at::Tensor source, const Geometry& geometry, VersionCheck version,
                   const SaveInfo& info, Timing timing)
    : hooks_(std::move(hooks)),
      geometry_(geometry),
      info_(without_node(info)),
      dtype_(source.dtype()),
      device_(source.device()),
      keys_(source.key_set()),
      version_(std::move(version)),
      alone_(!timing.may_share && !timing.pack_later && !timing.fetch_early),
      source_(timing.may_share ? source.storage().getWeakStorageImpl()
                               : WeakStorage(c10::intrusive_ptr<c10::StorageImpl>())),
      prefetch_(timing.fetch_early ? std::make_unique<Prefetch>() : nullptr),
      saved_(timing.pack_later || timing.fetch_early ? base::StreamMark::here(device_) : base::StreamMark()),
      is_packed_(!timing.pack_later),
      is_simple_(!timing.pack_later),
      packed_(timing.pack_later ? Packed() : call_pack(*hooks_, source, info)) {
  if (timing.pack_later) {
    waiting_ = std::move(source);
    engine::note_waiting_bytes(bytes());
  } else if (timing.fetch_early) {
    made_ = base::StreamMark::here(device_);
  }
}

PackUnit::~PackUnit() {
  if (waiting_.defined()) engine::note_waiting_bytes(-bytes());
}

at::Tensor PackUnit::stop_waiting() {
  if (waiting_.defined()) engine::note_waiting_bytes(-bytes());
  return std::exchange(waiting_, at::Tensor());
}

bool PackUnit::holds_exactly(const Geometry& other) const {
  if (other.dims == geometry_.dims) return other.offset == geometry_.offset;
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
  is_simple_ = false;
}

void PackUnit::replace_by(std::shared_ptr<PackUnit> larger) {
  at::Tensor waited;  // goes without the lock
  {
    const base::MutexLock lock(mutex_);
    larger_ = std::move(larger);
    is_packed_ = false;
    waited = stop_waiting();
    is_simple_ = false;
    is_replaced_ = true;
  }
  drop_packed();
}

// Whoever comes last, the larger unit or a reader, finds that the other has been.
void PackUnit::drop_packed() {
  Packed dropped;  // goes without the lock
  const base::MutexLock lock(mutex_);
  if (readers_ == 0) dropped = std::exchange(packed_, Packed());
}

std::shared_ptr<PackUnit> PackUnit::larger() {
  const base::MutexLock lock(mutex_);
  return larger_;
}

at::Tensor PackUnit::fetch(const Geometry* part, base::Node* node) {
  if (alone_) return cut(unpack(node), part);
  const Reading reading(*this);
  if (!is_simple_) {
    std::shared_ptr<PackUnit> other;
    at::Tensor memory;
    bool packed = false;
    {
      const base::MutexLock lock(mutex_);
      other = larger_;
      packed = is_packed_;
      memory = waiting_.defined() ? waiting_ : still_alive();
    }
    if (other != nullptr) return other->fetch(part != nullptr ? part : &geometry_, node);
    if (memory.defined()) return cut(std::move(memory), part);
    TORCH_INTERNAL_ASSERT(packed, "a tensor saved under ", hooks_->name(), " is not there.");
  }
  at::Tensor memory = take_fetched();
  if (!memory.defined()) memory = unpack(node);
  if (!is_simple_) remember(memory);
  return cut(std::move(memory), part);
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

at::Tensor PackUnit::still_alive() {
  if (!shared_) return {};
  c10::intrusive_ptr<c10::StorageImpl> storage = fetched_.lock();
  if (!storage) return {};
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), keys_, dtype_);
  impl->set_version_counter(version_.counter());
  impl->set_sizes_and_strides(geometry_.sizes(), geometry_.strides(), fetched_offset_);
  return at::Tensor(std::move(impl));
}

at::Tensor PackUnit::unpack(base::Node* node) {
  const InsideHook inside;
  made_.wait();
  return checked_unpack(*hooks_, packed_, UnpackInfo{.node = node, .save = info_},
                        {geometry_.sizes(), geometry_.strides(), dtype_, device_});
}

at::Tensor PackUnit::cut(at::Tensor whole, const Geometry* part) const {
  const c10::VariableVersion& counter = version_.counter();
  const Geometry& wanted = part != nullptr ? *part : geometry_;
  if ((part == nullptr || wanted == geometry_) && !whole.requires_grad()) {
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
    if (!version_.is_current()) {
      stop_waiting();  // `source` holds it
      return;
    }
  }
  Packed packed;
  base::StreamMark made;
  {
    const InsideHook inside;
    const c10::NoGradGuard no_grad;
    const c10::OptionalDeviceGuard device(device_of_accelerator());
    saved_.wait();
    packed = call_pack(*hooks_, source, info_);
    made = base::StreamMark::here(device_);
    base::note_use_here(source);
  }
  engine::count(Count::kPackedLater);
  const base::MutexLock lock(mutex_);
  if (!waiting_.defined()) return;  // a larger unit came
  packed_ = std::move(packed);
  made_ = std::move(made);
  is_packed_ = true;
  is_simple_ = !shared_;
  stop_waiting();  // `source` holds it
}

bool PackUnit::is_lost() {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->is_lost();
  const base::MutexLock lock(mutex_);
  if (waiting_.defined()) return !version_.is_current();
  return !is_packed_ && larger_ == nullptr;
}

// --- fetched early ---

bool PackUnit::announce_fetch() {
  if (const std::shared_ptr<PackUnit> other = larger()) return other->announce_fetch();
  if (prefetch_ == nullptr) return false;
  {
    const base::MutexLock lock(mutex_);
    if (!is_packed_) return false;
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
  const Reading reading(*this);
  {
    const base::MutexLock lock(mutex_);
    if (!is_packed_) return {};
  }
  const std::optional<c10::Device> device = device_of_accelerator();
  const c10::OptionalStreamGuard stream(device ? std::optional(base::side_stream(*device)) : std::nullopt);
  const c10::NoGradGuard no_grad;
  at::Tensor memory = unpack(nullptr);
  for (const at::Tensor& part : packed_.tensors) {
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
