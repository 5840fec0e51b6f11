#include "hooks/memory/pack_unit.h"

#include "engine/base/counters.h"
#include "hooks/interface/hook_calls.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

namespace overdrive::hooks {
namespace counts {
static constinit base::Counter packed_later{"packed_later"};
static constinit base::Counter waiting_bytes{"waiting_bytes", base::Counter::Kind::kNow};
}  // namespace counts

PackUnit::PackUnit(HooksPtr hooks, at::Tensor source, const Geometry& geometry,
                   engine::host::VersionCheck version, const SaveInfo& info, Timing timing)
    : memory_(std::move(hooks), source, geometry, std::move(version), info),
      keys_(source.key_set()),
      source_(timing.may_share ? source.storage().getWeakStorageImpl()
                               : WeakStorage(c10::intrusive_ptr<c10::StorageImpl>())),
      prefetch_(timing.fetch_early ? std::make_unique<Prefetch>() : nullptr),
      saved_(timing.pack_later || timing.fetch_early ? base::StreamMark::here(memory_.device())
                                                     : base::StreamMark()),
      node_name_(timing.pack_later && info.node != nullptr ? info.node->name() : std::string()),
      is_packed_(!timing.pack_later),
      is_simple_(!timing.pack_later),
      packed_(timing.pack_later ? Packed() : memory_.pack(source, info)),
      packed_on_(timing.pack_later || timing.fetch_early || memory_.device().is_cpu()
                     ? std::nullopt
                     : std::optional(base::current_stream(memory_.device()))) {
  if (timing.pack_later) {
    waiting_ = std::move(source);
    base::count(counts::waiting_bytes, memory_.bytes());
  } else if (timing.fetch_early) {
    made_ = base::StreamMark::here(memory_.device());
  }
}

PackUnit::~PackUnit() { stop_waiting(); }

at::Tensor PackUnit::stop_waiting() {
  if (waiting_.defined()) base::count(counts::waiting_bytes, -memory_.bytes());
  return std::exchange(waiting_, at::Tensor());
}

void PackUnit::share() {
  const base::MutexLock lock(mutex_);
  if (!shared_ && packed_on_) made_ = base::StreamMark::of(*packed_on_);
  shared_ = true;
  is_simple_ = false;
}

at::Tensor PackUnit::fetch(const Geometry* part, base::Node* node) {
  if (!is_simple_) {
    at::Tensor memory;
    base::StreamMark ready;
    bool packed = false;
    {
      const base::MutexLock lock(mutex_);
      packed = is_packed_;
      memory = waiting_.defined() ? waiting_ : still_alive();
      ready = fetched_ready_;
    }
    if (memory.defined()) {
      ready.wait();
      base::note_use_here(memory);
      return memory_.cut(std::move(memory), part);
    }
    TORCH_INTERNAL_ASSERT(packed, "a tensor saved under ", memory_.hooks().name(), " is not there.");
  }
  at::Tensor memory = take_fetched();
  if (!memory.defined()) memory = unpack_now(node);
  if (!is_simple_) remember(memory);
  return memory_.cut(std::move(memory), part);
}

at::Tensor PackUnit::unpack_now(base::Node* node) {
  at::Tensor memory = unpack(node);
  // Others may be about to ask, when this node is done with it.
  if (prefetch_ != nullptr && !is_simple_) {
    prefetch_->offer({memory, base::StreamMark::here(memory_.device())});
  }
  return memory;
}

// Only memory that unpack() made: the tensor that was saved is its program's, and may be written to.
void PackUnit::remember(const at::Tensor& fetched) {
  const c10::Storage& storage = fetched.storage();
  if (storage.unsafeGetStorageImpl() == source_._unsafe_get_target()) return;
  base::StreamMark ready = base::StreamMark::here(memory_.device());
  const base::MutexLock lock(mutex_);
  if (!shared_) return;
  fetched_ = storage.getWeakStorageImpl();
  fetched_offset_ = fetched.storage_offset();
  fetched_ready_ = std::move(ready);
}

at::Tensor PackUnit::still_alive() {
  if (!shared_) return {};
  c10::intrusive_ptr<c10::StorageImpl> storage = fetched_.lock();
  if (!storage) return {};
  const Geometry& place = memory_.geometry();
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), keys_, memory_.dtype());
  impl->set_version_counter(memory_.version().counter());
  impl->set_sizes_and_strides(place.sizes(), place.strides(), fetched_offset_);
  return at::Tensor(std::move(impl));
}

at::Tensor PackUnit::unpack(base::Node* node) {
  if (!memory_.device().is_cpu()) {
    base::StreamMark made;
    {
      const base::MutexLock lock(mutex_);
      made = made_;
    }
    made.wait();
  }
  return memory_.unpack(packed_, node);
}

// --- packed later ---

void PackUnit::pack_waiting() {
  at::Tensor source;  // goes without the lock
  {
    const base::MutexLock lock(mutex_);
    source = waiting_;
    if (!source.defined()) return;
    if (!memory_.version().is_current()) {
      stop_waiting();  // `source` holds it
      return;
    }
  }
  auto [packed, made] = pack_late(source);
  base::count(counts::packed_later);
  const base::MutexLock lock(mutex_);
  if (!waiting_.defined()) return;  // another thread was faster
  packed_ = std::move(packed);
  made_ = std::move(made);
  is_packed_ = true;
  is_simple_ = !shared_;
  stop_waiting();  // `source` holds it
}

std::pair<Packed, base::StreamMark> PackUnit::pack_late(const at::Tensor& source) const {
  const InsideHook inside;
  const c10::NoGradGuard no_grad;
  const c10::OptionalDeviceGuard device(memory_.accelerator());
  saved_.wait();
  SaveInfo info = memory_.info();
  info.node_name = node_name_.empty() ? nullptr : &node_name_;
  Packed packed = memory_.pack(source, info);
  base::note_use_here(source);
  return {std::move(packed), base::StreamMark::here(memory_.device())};
}

bool PackUnit::is_lost() {
  const base::MutexLock lock(mutex_);
  return waiting_.defined() ? !memory_.version().is_current() : !is_packed_;
}

}  // namespace overdrive::hooks
