#include "hooks/packers/recompute.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace overdrive::hooks {
namespace {
class Keep final : public SavedTensorHooks {
 public:
  Packed pack(const at::Tensor& tensor, const SaveInfo&) override {
    Packed packed;
    packed.tensors.push_back(tensor);  // a list in braces would copy it twice
    return packed;
  }
  at::Tensor unpack(Packed& packed, const UnpackInfo&) override { return packed.tensors[0]; }
  bool lossless() const override { return true; }
  std::string name() const override { return "keep"; }
};

class Recompute final : public SavedTensorHooks {
 public:
  explicit Recompute(PlanRecompute plan) : plan_(std::move(plan)) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override {
    MakeAgain make_again = plan_(tensor, info);
    if (!make_again) return {.tensors = {tensor}, .state = {}};
    return {.tensors = {}, .state = std::move(make_again)};
  }

  at::Tensor unpack(Packed& packed, const UnpackInfo&) override {
    if (!packed.tensors.empty()) return packed.tensors[0];
    const c10::NoGradGuard no_grad;
    return std::any_cast<const MakeAgain&>(packed.state)();
  }

  std::string name() const override { return "recompute"; }

 private:
  const PlanRecompute plan_;
};

}  // namespace

HooksPtr keep() { return std::make_shared<Keep>(); }

HooksPtr recompute(PlanRecompute plan) {
  TORCH_CHECK(plan != nullptr, "recompute() needs a function that says how a tensor is made again.");
  return std::make_shared<Recompute>(std::move(plan));
}

}  // namespace overdrive::hooks
