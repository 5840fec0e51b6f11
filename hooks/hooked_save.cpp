#include "hooks/hooked_save.h"

#include "engine/node_under_way.h"
#include "hooks/inside_hook.h"
#include "hooks/look_ahead.h"
#include "hooks/tensor_kinds.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

namespace overdrive::hooks {
namespace {

// The node that is being made on this thread took the last number.
uint64_t last_sequence_nr() { return at::sequence_number::peek() - 1; }

bool is_being_made(const base::Node& node, const SaveInfo& info) {
  return node.sequence_nr() == info.sequence_nr && node.thread_id() == info.thread;
}

SaveInfo describe(const at::Tensor& tensor, const base::NodePtr& producer, HookScope& scope) {
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
                .parameter = is_parameter(tensor)};
  info.index = info.sequence_nr == last.sequence_nr ? last.index + 1 : 0;
  last = {info.sequence_nr, info.index};
  if (producer && is_being_made(*producer, info)) info.node = producer.get();
  return info;
}

int64_t bytes_of(const Geometry& geometry, const at::Tensor& tensor) {
  return std::min(geometry.numel(), geometry.extent()) * static_cast<int64_t>(tensor.itemsize());
}

at::IntArrayRef sizes_of(const at::Tensor& tensor) {
  return tensor.is_nested() ? at::IntArrayRef() : tensor.sizes();
}

// Of units with the tensor's memory: the one that holds it, or null; then only those that overlap it are left.
std::shared_ptr<PackUnit> holder_among(SharedUnits::Units& units, const at::Tensor& tensor,
                                       const Geometry& place, bool lossless) {
  const auto is_apart = [&](const auto& unit) {
    return unit->dtype() != tensor.dtype() || !unit->overlaps(place);
  };
  units.erase(std::remove_if(units.begin(), units.end(), is_apart), units.end());
  for (const auto& unit : units) {
    if (lossless ? unit->contains(place) : unit->holds_exactly(place)) return unit;
  }
  return nullptr;
}

// What a new unit has to hold where that is not the tensor as it is: the union of all that overlap; of elements
// that are repeated each once; memory without conjugation and negation. Gaps between elements are not packed.
std::optional<Geometry> more_or_less_than(const Geometry& place, const SharedUnits::Units& overlapping) {
  int64_t begin = place.offset;
  int64_t end = place.end();
  const int64_t extent = end - begin;
  for (const auto& unit : overlapping) {
    begin = std::min(begin, unit->geometry().offset);
    end = std::max(end, unit->geometry().end());
  }
  const bool is_union = overlapping.empty() || (extent == end - begin && place.is_dense());
  if (!is_union) return Geometry::row(begin, end - begin);
  if (extent < place.numel()) return Geometry::row(begin, extent);
  if (!place.conj && !place.neg) return std::nullopt;
  Geometry plain = place;
  plain.conj = plain.neg = false;
  return plain;
}

}  // namespace

void HookedSave::call_pack_hook(const at::Tensor& tensor) {
  const InsideHook inside;
  HookScope& scope = *scope_;
  check_in_place_ = scope.options.check_in_place;
  VersionCheck version(tensor);
  const base::NodePtr& producer = tensor.grad_fn();
  SaveInfo info = describe(tensor, producer, scope);
  if (producer) note_producer(tensor, producer, info);
  if (is_packable(tensor) && !(info.parameter && scope.options.skip_parameters)) {
    const Geometry place = Geometry::of(tensor);
    info.bytes = bytes_of(place, tensor);
    if (scope.wants(tensor, info)) return pack(tensor, std::move(version), place, info);
  }
  // Not the tensor itself where it has history: an output of the node would own its own node.
  kept_ = producer ? tensor.tensor_data() : tensor;
  version_ = std::move(version);
  scope_.reset();
}

void HookedSave::note_producer(const at::Tensor& tensor, const base::NodePtr& producer, const SaveInfo& info) {
  output_nr_ = tensor.output_nr();
  output_of_owner_ = info.node != nullptr;
  if (!output_of_owner_) producer_ = producer;
}

void HookedSave::pack(const at::Tensor& tensor, VersionCheck version, const Geometry& place, SaveInfo& info) {
  HookScope& scope = *scope_;  // lives as long as its units
  SharedUnits::Units overlapping;
  if (scope.options.share) overlapping = scope.units.of(tensor, version);
  if (!overlapping.empty()) {
    const bool lossless = scope.hooks->lossless();
    unit_ = holder_among(overlapping, tensor, place, lossless);
    if (!overlapping.empty()) info.shared_with = overlapping.back()->info().id;
    if (!lossless) overlapping.clear();
  }
  if (unit_ != nullptr) {
    unit_->share();
    if (!(place == unit_->geometry())) part_ = std::make_unique<const Geometry>(place);
  } else {
    make_unit(tensor, std::move(version), place, overlapping, info);
  }
  const PackUnit::Timing timing = scope.timing();
  if (timing.fetch_early) fetch_ahead_for(info, *scope.schedule, unit_);
  if (timing.pack_later) scope.pending.look();
  scope_.reset();
}

void HookedSave::make_unit(const at::Tensor& tensor, VersionCheck version, const Geometry& place,
                           const SharedUnits::Units& overlapping, const SaveInfo& info) {
  HookScope& scope = *scope_;
  const std::optional<Geometry> other = more_or_less_than(place, overlapping);
  if (other) part_ = std::make_unique<const Geometry>(place);
  const Geometry& packed = other ? *other : place;
  at::Tensor source = view_over(tensor, packed, version.counter());
  HooksPtr hooks(std::move(scope_), scope.hooks.get());  // and with them the scope
  const PackUnit::Timing timing = scope.timing();
  unit_ =
      std::make_shared<PackUnit>(std::move(hooks), std::move(source), packed, std::move(version), info, timing);
  if (timing.pack_later) scope.pending.add(tensor, unit_);
  if (!timing.may_share) return;
  // A larger unit takes the place of those that it overlaps, so that what shared memory still does.
  if (!overlapping.empty()) unit_->share();
  for (const auto& smaller : overlapping) smaller->replace_by(unit_);
  scope.units.add(tensor, unit_);
}

at::Tensor HookedSave::call_unpack_hook() {
  // Whatever the options say: what was changed before it was packed is gone.
  if (!version().is_current() && (check_in_place_ || (unit_ && unit_->is_lost()))) refuse_changed();
  if (unit_ == nullptr) return kept_;
  return unit_->fetch(part_.get(), engine::node_under_way());
}

void HookedSave::refuse_changed() const {
  const base::NodePtr producer = producer_.lock();
  const base::Node* node = output_of_owner_ ? engine::node_under_way() : producer.get();
  const at::Tensor looks_like = unit_ ? unit_->looks() : kept_;
  const at::IntArrayRef sizes = unit_ ? (part_ ? *part_ : unit_->geometry()).sizes() : sizes_of(kept_);
  hooks::refuse_changed(
      {looks_like, sizes, version().counter().current_version(), version().saved_version(), node, output_nr_});
}

}  // namespace overdrive::hooks
