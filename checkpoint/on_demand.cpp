#include "checkpoint/on_demand.h"

#include "checkpoint/dropped_tensors.h"

#include <utility>

namespace overdrive::checkpoint {

namespace {

using PlacePtr = std::shared_ptr<DroppedTensors::Place>;

// Of the first run: drops.
class DropHooks final : public hooks::SavedTensorHooks {
 public:
  explicit DropHooks(std::shared_ptr<DroppedTensors> dropped) : dropped_(std::move(dropped)) {}

  // An early region inside runs again in the modes of its forward, this scope among them, when ours has long
  // got its tensors. What it saves then is its own.
  bool wants(const at::Tensor&, const hooks::SaveInfo&) override { return dropped_->is_open(); }
  hooks::Packed pack(const at::Tensor& tensor, const hooks::SaveInfo&) override {
    return {.tensors = {}, .state = dropped_->drop(tensor)};
  }
  at::Tensor unpack(hooks::Packed& packed, const hooks::UnpackInfo&) override {
    return std::any_cast<const PlacePtr&>(packed.state)->fetch();
  }
  std::string name() const override { return dropped_->name(); }

 private:
  const std::shared_ptr<DroppedTensors> dropped_;
};

}  // namespace

Tensors run_on_demand(Function fn, const Tensors& inputs, const Options& options) {
  detail::first_defined(inputs, options);
  if (!at::GradMode::is_enabled()) return fn(inputs);
  detail::check_no_layers();
  auto dropped = std::make_shared<DroppedTensors>(std::move(fn), inputs, options);
  const hooks::ScopedHooks scope(std::make_shared<DropHooks>(dropped), DroppedTensors::kOfARegion);
  return dropped->run(inputs);
}

}  // namespace overdrive::checkpoint
