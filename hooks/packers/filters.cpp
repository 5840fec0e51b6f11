#include "hooks/packers/filters.h"

#include "hooks/interface/hook_calls.h"
#include "hooks/interface/tensor_kinds.h"

#include <ATen/core/DimVector.h>

#include <algorithm>
#include <utility>

namespace overdrive::hooks {
namespace {
// Another hook, but for the functions that a subclass overrides.
class Wrapped : public SavedTensorHooks {
 public:
  explicit Wrapped(HooksPtr hooks) : hooks_(std::move(hooks)) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override { return hooks_->pack(tensor, info); }
  at::Tensor unpack(Packed& packed, const UnpackInfo& info) override { return hooks_->unpack(packed, info); }
  void expect(const Packed& packed) override { hooks_->expect(packed); }
  bool wants(const at::Tensor& tensor, const SaveInfo& info) override { return hooks_->wants(tensor, info); }
  bool lossless() const override { return hooks_->lossless(); }
  std::optional<Schedule> schedule() const override { return hooks_->schedule(); }
  std::string name() const override { return hooks_->name(); }

 private:
  const HooksPtr hooks_;
};

class Filter final : public Wrapped {
 public:
  Filter(std::string what, Predicate predicate, const HooksPtr& hooks)
      : Wrapped(hooks), what_(std::move(what)), predicate_(std::move(predicate)) {
    TORCH_CHECK(predicate_ != nullptr && hooks != nullptr, "A filter of saved-tensor hooks (", what_,
                ") needs a condition and hooks.");
  }

  bool wants(const at::Tensor& tensor, const SaveInfo& info) override {
    return predicate_(tensor, info) && Wrapped::wants(tensor, info);
  }
  std::string name() const override { return Wrapped::name() + " " + what_; }

 private:
  const std::string what_;
  const Predicate predicate_;
};

class Schedulable final : public Wrapped {
 public:
  Schedulable(HooksPtr hooks, const Schedule& schedule) : Wrapped(std::move(hooks)), schedule_(schedule) {}
  std::optional<Schedule> schedule() const override { return schedule_; }

 private:
  const Schedule schedule_;
};

class Composed final : public SavedTensorHooks {
 public:
  Composed(HooksPtr first, HooksPtr second) : first_(std::move(first)), second_(std::move(second)) {
    TORCH_CHECK(first_ != nullptr && second_ != nullptr,
                "in_turn() was given a null pointer in place of hooks.");
  }

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override {
    auto whole = std::make_shared<Whole>();
    whole->first = first_->pack(tensor, info);
    for (at::Tensor& part : whole->first.tensors) whole->parts.push_back(pack_part(part, info));
    return {.tensors = {}, .state = std::move(whole)};
  }

  at::Tensor unpack(Packed& packed, const UnpackInfo& info) override {
    auto& whole = *std::any_cast<std::shared_ptr<Whole>&>(packed.state);
    // A copy: others may be unpacking the same.
    Packed first{.tensors = whole.first.tensors, .state = whole.first.state};
    for (size_t i = 0; i < whole.parts.size(); ++i) {
      Part& part = whole.parts[i];
      if (!part.packed) continue;
      const PackedAs as{part.sizes, part.strides, part.dtype, part.device};
      first.tensors[i] = checked_unpack(*second_, *part.packed, info, as);
    }
    return first_->unpack(first, info);
  }

  void expect(const Packed& packed) override {
    for (const Part& part : std::any_cast<const std::shared_ptr<Whole>&>(packed.state)->parts) {
      if (part.packed) second_->expect(*part.packed);
    }
  }
  bool wants(const at::Tensor& tensor, const SaveInfo& info) override { return first_->wants(tensor, info); }
  bool lossless() const override { return first_->lossless() && second_->lossless(); }
  // The second schedule, because the second hook may take long; only where both bear one.
  std::optional<Schedule> schedule() const override {
    return first_->schedule() ? second_->schedule() : std::nullopt;
  }
  std::string name() const override { return first_->name() + " and then " + second_->name(); }

 private:
  // The packed form of one tensor of `first`, if `second` wanted it.
  struct Part {
    std::optional<Packed> packed;
    at::DimVector sizes, strides;
    caffe2::TypeMeta dtype;
    c10::Device device{c10::kCPU};
  };
  struct Whole {
    Packed first;
    std::vector<Part> parts;
  };

  // `second` sees the part as if an operator had saved it: odd tensors pass, others come as plain memory.
  Part pack_part(at::Tensor& tensor, const SaveInfo& save) {
    Part part;
    if (!tensor.defined() || !is_packable(tensor)) return part;
    tensor = ordinary(std::move(tensor));
    part.dtype = tensor.dtype();
    part.device = tensor.device();
    SaveInfo info = save;
    info.bytes = static_cast<int64_t>(tensor.nbytes());
    info.dtype = tensor.scalar_type();
    if (!second_->wants(tensor, info)) return part;
    part.sizes = tensor.sizes();
    part.strides = tensor.strides();
    part.packed = second_->pack(tensor, info);
    tensor.reset();
    return part;
  }

  const HooksPtr first_;
  const HooksPtr second_;
};

}  // namespace

HooksPtr where(Predicate predicate, HooksPtr hooks) {
  return std::make_shared<Filter>("where the program's condition holds", std::move(predicate),
                                  std::move(hooks));
}

HooksPtr min_bytes(int64_t bytes, HooksPtr hooks) {
  TORCH_CHECK(bytes >= 0, "min_bytes() was given ", bytes, " bytes; it takes 0 and more.");
  const auto large = [bytes](const at::Tensor&, const SaveInfo& info) { return info.bytes >= bytes; };
  return std::make_shared<Filter>(c10::str("from ", bytes, " bytes on"), large, std::move(hooks));
}

HooksPtr only_types(std::vector<at::ScalarType> types, HooksPtr hooks) {
  TORCH_CHECK(!types.empty(), "only_types() was given no types, so its hooks would never be called.");
  std::string what = "for";
  for (const at::ScalarType type : types) what += std::string(" ") + c10::toString(type);
  const auto known = [types = std::move(types)](const at::Tensor&, const SaveInfo& info) {
    return std::find(types.begin(), types.end(), info.dtype) != types.end();
  };
  return std::make_shared<Filter>(what, known, std::move(hooks));
}

HooksPtr compose(HooksPtr first, HooksPtr second) {
  return std::make_shared<Composed>(std::move(first), std::move(second));
}

HooksPtr in_turn(std::vector<HooksPtr> hooks) {
  TORCH_CHECK(!hooks.empty(), "in_turn() was given no hooks.");
  HooksPtr all = std::move(hooks[0]);
  TORCH_CHECK(all != nullptr, "in_turn() was given a null pointer in place of hooks.");
  for (size_t i = 1; i < hooks.size(); ++i) all = compose(std::move(all), std::move(hooks[i]));
  return all;
}

HooksPtr schedulable(HooksPtr hooks, Schedule schedule) {
  TORCH_CHECK(hooks != nullptr, "schedulable() was given no hooks.");
  check_not_negative("schedulable", "window_tensors", schedule.window_tensors);
  check_not_negative("schedulable", "window_bytes", schedule.window_bytes);
  check_not_negative("schedulable", "depth", schedule.depth);
  check_not_negative("schedulable", "ahead_bytes", schedule.ahead_bytes);
  TORCH_CHECK(schedule.depth > 0 || (schedule.window_tensors > 0 && schedule.window_bytes > 0),
              "schedulable() was given a schedule that neither packs later (window_tensors, window_bytes) nor "
              "unpacks earlier (depth).");
  return std::make_shared<Schedulable>(std::move(hooks), schedule);
}

}  // namespace overdrive::hooks
