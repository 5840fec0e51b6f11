#include "hooks/packers/schedulable.h"

#include "engine/base/torch_types.h"
#include "hooks/packers/option_check.h"

#include <utility>

namespace overdrive::hooks {
namespace {

class Schedulable final : public SavedTensorHooks {
 public:
  Schedulable(HooksPtr hooks, const Schedule& schedule) : hooks_(std::move(hooks)), schedule_(schedule) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override { return hooks_->pack(tensor, info); }
  at::Tensor unpack(Packed& packed, const UnpackInfo& info) override { return hooks_->unpack(packed, info); }
  void expect(const Packed& packed) override { hooks_->expect(packed); }
  bool wants(const at::Tensor& tensor, const SaveInfo& info) override { return hooks_->wants(tensor, info); }
  std::optional<uint64_t> cache_key() const override { return hooks_->cache_key(); }
  bool lossless() const override { return hooks_->lossless(); }
  std::optional<Schedule> schedule() const override { return schedule_; }
  std::string name() const override { return hooks_->name(); }

 private:
  const HooksPtr hooks_;
  const Schedule schedule_;
};

}  // namespace

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
