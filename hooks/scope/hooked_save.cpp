#include "hooks/scope/hooked_save.h"

#include "engine/base/autograd_modes.h"
#include "engine/node/borrowed_storage.h"
#include "engine/run/active_run.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/memory/fetch_ahead.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

namespace overdrive::hooks {
namespace {
// The node that is being made on this thread took the last number.
uint64_t last_sequence_nr() { return at::sequence_number::peek() - 1; }

bool is_being_made(const base::Node& node, const SaveInfo& info) {
  return node.sequence_nr() == info.sequence_nr && node.thread_id() == info.thread;
}

SaveInfo describe(const at::Tensor& tensor, const History& history, HookScope& scope) {
  struct Last {
    uint64_t sequence_nr = UINT64_MAX;
    uint32_t index = 0;
  };
  thread_local Last last_of_thread;
  Last& last = last_of_thread;
  SaveInfo info{.id = scope.next_id(),
                .thread = at::RecordFunction::currentThreadId(),
                .sequence_nr = last_sequence_nr(),
                .dtype = tensor.scalar_type(),
                .parameter = history.parameter};
  info.index = info.sequence_nr == last.sequence_nr ? last.index + 1 : 0;
  last = {info.sequence_nr, info.index};
  // A view's history is made when somebody asks for it, which may be the node that saves it: then it looks like
  // an output of that node.
  const bool is_output = history.node != nullptr && is_being_made(*history.node, info) && !tensor.is_view();
  if (is_output) info.node = history.node.get();
  return info;
}

int64_t bytes_of(const Geometry& geometry, const at::Tensor& tensor) {
  return geometry.distinct() * static_cast<int64_t>(tensor.itemsize());
}

at::IntArrayRef sizes_of(const at::Tensor& tensor) {
  return tensor.is_nested() ? at::IntArrayRef() : tensor.sizes();
}

// The memory to pack where that is not the tensor as it is: repeated elements once, without conjugation and
// negation.
std::optional<Geometry> other_than(const Geometry& place) {
  if (!place.conj && !place.neg && place.distinct() == place.numel()) return std::nullopt;
  return place.each_once();
}

}  // namespace

void HookedSave::call_pack_hook(const at::Tensor& tensor) {
  const InsideHook inside;
  const base::OutsideInference ordinary;
  engine::BorrowedStorage::use();
  HookScope& scope = *scope_;
  check_in_place_ = scope.options.check_in_place;
  engine::host::VersionCheck version(tensor);
  const History history = history_of(tensor);
  SaveInfo info = describe(tensor, history, scope);
  if (history.node != nullptr) {
    output_nr_ = history.output_nr;
    producer_ = history.node;
  }
  if (is_packable(tensor) && !(info.parameter && scope.options.skip_parameters)) {
    const Geometry place = Geometry::of(tensor);
    info.bytes = bytes_of(place, tensor);
    if (scope.hooks->wants(tensor, info)) {
      PackUnit::Timing timing = scope.timing();
      timing.may_share &= !may_change_unseen(tensor, history);
      // Under a schedule nothing is packed before its operator is done with it.
      if (history.node == nullptr && !info.parameter && !timing.pack_later) {
        perhaps_unfilled_ = tensor.storage().getWeakStorageImpl();
      }
      return pack(tensor, std::move(version), place, timing, info);
    }
  }
  // Not the tensor itself where it has history: an output of the node would own its own node.
  kept_ = history.node != nullptr ? tensor.tensor_data() : tensor;
  version_ = std::move(version);
  if (scope.timing().pack_later) scope.pending.look(info);
  scope_.reset();
}

void HookedSave::pack(const at::Tensor& tensor, engine::host::VersionCheck version, const Geometry& place,
                      const PackUnit::Timing& timing, const SaveInfo& info) {
  HookScope& scope = *scope_;  // lives as long as its units
  if (timing.may_share) unit_ = scope.units.holder_of(tensor, version, place, scope.hooks->lossless());
  if (unit_ == nullptr) {
    make_new(tensor, std::move(version), place, timing, info);
  } else {
    unit_->share();
    if (!(place == unit_->memory().geometry())) part_ = std::make_unique<const Geometry>(place);
  }
  if (timing.is_plain()) return;
  if (timing.fetch_early) fetch_ahead_for(info, *scope.schedule, unit_);
  if (timing.pack_later) scope.pending.look(info);
  scope_.reset();
}

void HookedSave::make_new(const at::Tensor& tensor, engine::host::VersionCheck version, const Geometry& place,
                          const PackUnit::Timing& timing, const SaveInfo& info) {
  HookScope& scope = *scope_;
  const std::optional<Geometry> other = other_than(place);
  if (other) part_ = std::make_unique<const Geometry>(place);
  const Geometry& packed = other ? *other : place;
  at::Tensor source = view_over(tensor, packed, version.counter());
  HooksPtr hooks(std::move(scope_), scope.hooks.get());  // and with them the scope
  if (timing.is_plain()) {
    plain_.emplace(std::move(hooks), source, packed, std::move(version), info);
    return;
  }
  unit_ =
      std::make_shared<PackUnit>(std::move(hooks), std::move(source), packed, std::move(version), info, timing);
  if (timing.pack_later) scope.pending.add(tensor, unit_);
  if (timing.may_share) scope.units.add(tensor, unit_);
}

at::Tensor HookedSave::call_unpack_hook() { return unpack_for(engine::node_under_way()); }

at::Tensor HookedSave::unpack_for(base::Node* node) {
  // A node may be in inference mode when it asks, and tensors made there have no version counter.
  const base::OutsideInference ordinary;
  // A tensor that was changed before it was packed is gone, whatever the options say.
  if (!version().is_current() && (check_in_place_ || (unit_ && unit_->is_lost()))) refuse_changed();
  at::Tensor result = plain_ ? plain_->memory.cut(plain_->memory.unpack(plain_->packed, node), part_.get())
                      : unit_ != nullptr ? unit_->fetch(part_.get(), node)
                                         : kept_;
  if (perhaps_unfilled_._unsafe_get_target() != nullptr && node != nullptr) check_filled(result, *node);
  engine::BorrowedStorage::note(result);
  return result;
}

// A hook that keeps the tensor itself also has the numbers that the operator wrote later.
void HookedSave::check_filled(const at::Tensor& unpacked, const base::Node& node) const {
  const bool is_the_tensor =
      unpacked.storage().unsafeGetStorageImpl() == perhaps_unfilled_._unsafe_get_target();
  if (!is_the_tensor && fills_what_it_saved(node)) refuse_filled_later(node, memory()->hooks().name());
}

void HookedSave::refuse_changed() const {
  const base::NodePtr producer = producer_.lock();
  const SavedMemory* packed = memory();
  const at::Tensor looks_like = packed != nullptr ? packed->looks() : kept_;
  const at::IntArrayRef sizes =
      packed != nullptr ? (part_ ? *part_ : packed->geometry()).sizes() : sizes_of(kept_);
  engine::host::refuse_changed({looks_like, sizes, version().counter().current_version(),
                                version().saved_version(), engine::host::producer_name(producer.get()),
                                output_nr_});
}

}  // namespace overdrive::hooks
