#include "hooks/hooked_save.h"

#include "engine/node_under_way.h"
#include "hooks/look_ahead.h"
#include "hooks/tensor_kinds.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>

namespace overdrive::hooks {
namespace {

// The node that is being made on this thread took the last number.
uint64_t last_sequence_nr() { return at::sequence_number::peek() - 1; }

bool is_being_made(const base::Node& node, const SaveInfo& info) {
  return node.sequence_nr() == info.sequence_nr && node.thread_id() == info.thread;
}

SaveInfo describe(const at::Tensor& tensor, HookScope& scope) {
  struct Last {
    uint64_t sequence_nr = UINT64_MAX;
    uint32_t index = 0;
  };
  thread_local Last last;
  SaveInfo info{.id = scope.next_id(),
                .thread = at::RecordFunction::currentThreadId(),
                .sequence_nr = last_sequence_nr(),
                .dtype = tensor.scalar_type(),
                .parameter = is_parameter(tensor)};
  info.index = info.sequence_nr == last.sequence_nr ? last.index + 1 : 0;
  last = {info.sequence_nr, info.index};
  const base::NodePtr& producer = tensor.grad_fn();
  if (producer && is_being_made(*producer, info)) info.node = producer.get();
  return info;
}

// The tensor's memory without history, conjugation or negation.
at::Tensor plain_view(const at::Tensor& tensor, Geometry geometry, const c10::VariableVersion& counter) {
  geometry.conj = geometry.neg = false;
  return view_over(tensor, geometry, counter);
}

int64_t bytes_of(const Geometry& geometry, const at::Tensor& tensor) {
  return std::min(geometry.numel(), geometry.extent()) * static_cast<int64_t>(tensor.itemsize());
}

at::IntArrayRef sizes_of(const at::Tensor& tensor) {
  return tensor.is_nested() ? at::IntArrayRef() : tensor.sizes();
}

}  // namespace

void HookedSave::call_pack_hook(const at::Tensor& tensor) {
  const std::shared_ptr<HookScope> scope = std::move(scope_);
  check_in_place_ = scope->options.check_in_place;
  version_ = VersionCheck(tensor);
  SaveInfo info = describe(tensor, *scope);
  note_producer(tensor, info);
  const bool packable = is_packable(tensor) && !(info.parameter && scope->options.skip_parameters);
  if (packable) geometry_ = Geometry::of(tensor);
  if (packable) info.bytes = bytes_of(geometry_, tensor);
  if (!packable || !scope->wants(tensor, info)) {
    // Not the tensor itself where it has history: an output of the node would own its own node.
    kept_ = tensor.is_leaf() ? tensor : tensor.tensor_data();
    return;
  }
  unit_ = scope->options.share ? shared_unit(tensor, *scope, info) : own_unit(tensor, geometry_, *scope, info);
  const PackUnit::Timing timing = scope->timing();
  if (timing.fetch_early) fetch_ahead_for(info, *scope->schedule, unit_);
  if (timing.pack_later) scope->pending.look();
}

void HookedSave::note_producer(const at::Tensor& tensor, const SaveInfo& info) {
  if (tensor.is_leaf()) return;
  output_nr_ = tensor.output_nr();
  output_of_owner_ = info.node != nullptr;
  if (!output_of_owner_) producer_ = tensor.grad_fn();
}

std::shared_ptr<PackUnit> HookedSave::own_unit(const at::Tensor& tensor, const Geometry& place,
                                               HookScope& scope, const SaveInfo& info) {
  // Of elements that are repeated each is packed once; gaps between elements are not packed.
  const bool repeats = place.extent() < place.numel();
  const Geometry packed = repeats ? Geometry::row(place.offset, place.extent()) : place;
  const PackUnit::Timing timing = scope.timing();
  auto unit =
      std::make_shared<PackUnit>(scope.hooks, plain_view(tensor, packed, version_.counter()), info, timing);
  if (timing.pack_later) scope.pending.add(tensor, unit);
  return unit;
}

std::shared_ptr<PackUnit> HookedSave::shared_unit(const at::Tensor& tensor, HookScope& scope, SaveInfo& info) {
  const bool lossless = scope.hooks->lossless();
  int64_t begin = geometry_.offset;
  int64_t end = geometry_.end();
  std::vector<std::shared_ptr<PackUnit>> overlapping;
  for (auto& unit : scope.units.of(tensor, version_)) {
    if (unit->dtype() != tensor.dtype() || !unit->overlaps(geometry_)) continue;
    if (lossless ? unit->contains(geometry_) : unit->holds_exactly(geometry_)) {
      unit->share();
      return unit;
    }
    info.shared_with = unit->info().id;
    begin = std::min(begin, unit->geometry().offset);
    end = std::max(end, unit->geometry().end());
    overlapping.push_back(std::move(unit));
  }
  // A larger unit takes the place of those that it overlaps, so that what shared memory still does.
  const bool widen = lossless && !overlapping.empty();
  const bool is_union = geometry_.is_dense() && geometry_.offset == begin && geometry_.end() == end;
  auto unit = own_unit(tensor, widen && !is_union ? Geometry::row(begin, end - begin) : geometry_, scope, info);
  if (widen) {
    unit->share();
    for (const auto& smaller : overlapping) smaller->replace_by(unit);
  }
  scope.units.add(tensor, version_, unit);
  return unit;
}

at::Tensor HookedSave::call_unpack_hook() {
  // Whatever the options say: what was changed before it was packed is gone.
  if (!version_.is_current() && (check_in_place_ || (unit_ && unit_->is_lost()))) refuse_changed();
  if (unit_ == nullptr) return kept_;
  return unit_->fetch(geometry_, version_.counter(), engine::node_under_way());
}

void HookedSave::refuse_changed() const {
  const base::NodePtr producer = producer_.lock();
  const base::Node* node = output_of_owner_ ? engine::node_under_way() : producer.get();
  const at::Tensor looks_like = unit_ ? unit_->looks() : kept_;
  const at::IntArrayRef sizes = unit_ ? at::IntArrayRef(geometry_.sizes) : sizes_of(kept_);
  hooks::refuse_changed(
      {looks_like, sizes, version_.counter().current_version(), version_.saved_version(), node, output_nr_});
}

}  // namespace overdrive::hooks
