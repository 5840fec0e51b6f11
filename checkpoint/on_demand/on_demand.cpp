#include "checkpoint/on_demand/on_demand.h"

#include "checkpoint/on_demand/dropped_tensors.h"

#include <map>
#include <utility>

namespace overdrive::checkpoint {

namespace {

using HandlePtr = std::shared_ptr<DroppedTensors::Handle>;

// The packed form of a saved tensor: a HandlePtr, or one of these.
struct Saved {};
struct PackedElsewhere {
  hooks::Packed packed;
};

std::string maker_of(const at::Tensor& tensor) {
  const base::NodePtr& node = tensor.grad_fn();
  return node && !tensor.is_leaf() ? node->name() : std::string();
}

// The hooks of the region's first run. They drop each tensor, or keep or pack it where the program's policy
// says so.
class DropHooks final : public hooks::SavedTensorHooks {
 public:
  explicit DropHooks(std::shared_ptr<DroppedTensors> dropped) : dropped_(std::move(dropped)) {}

  // An early region inside runs again in the modes of its forward, this scope among them, when ours has long
  // got its tensors. What it saves then is its own.
  bool wants(const at::Tensor& tensor, const hooks::SaveInfo& info) override {
    if (!dropped_->is_open()) return false;
    // Here the tensor still has its history.
    const Policy& policy = dropped_->options().policy;
    if (policy && !info.parameter) {
      note(info.id, policy({maker_of(tensor), tensor.sizes(), info.dtype, info.bytes}));
    }
    return true;
  }

  hooks::Packed pack(const at::Tensor& tensor, const hooks::SaveInfo& info) override {
    const Choice choice = choice_for(info);
    if (choice == Choice::kRecompute) return {.tensors = {}, .state = dropped_->drop(tensor)};
    dropped_->pass(tensor);
    if (choice == Choice::kSave) return {.tensors = {tensor}, .state = Saved()};
    return {.tensors = {}, .state = PackedElsewhere{packer().pack(tensor, info)}};
  }

  at::Tensor unpack(hooks::Packed& packed, const hooks::UnpackInfo& info) override {
    if (const auto* handle = std::any_cast<HandlePtr>(&packed.state)) return (*handle)->fetch();
    if (auto* elsewhere = std::any_cast<PackedElsewhere>(&packed.state)) {
      return packer().unpack(elsewhere->packed, info);
    }
    return packed.tensors[0];
  }
  std::string name() const override { return dropped_->name(); }

 private:
  hooks::SavedTensorHooks& packer() const {
    const hooks::HooksPtr& packer = dropped_->options().packer;
    TORCH_CHECK(packer != nullptr, "The policy of ", dropped_->name(),
                " chose kPack for a tensor, but the region has no Options::packer.");
    return *packer;
  }

  void note(uint64_t id, Choice choice) OVERDRIVE_EXCLUDES(mutex_) {
    TORCH_CHECK(choice == Choice::kSave || choice == Choice::kRecompute || choice == Choice::kPack,
                "The policy of ", dropped_->name(), " returned ", static_cast<int>(choice),
                ", which is none of kSave, kRecompute and kPack.");
    const base::MutexLock lock(mutex_);
    chosen_[id] = choice;
  }
  Choice choice_for(const hooks::SaveInfo& info) OVERDRIVE_EXCLUDES(mutex_) {
    if (info.parameter) return Choice::kSave;
    const base::MutexLock lock(mutex_);
    const auto chosen = chosen_.extract(info.id);
    return chosen ? chosen.mapped() : Choice::kRecompute;
  }

  const std::shared_ptr<DroppedTensors> dropped_;

  base::Mutex mutex_;
  std::map<uint64_t, Choice> chosen_ OVERDRIVE_GUARDED_BY(mutex_);  // between wants() and pack()
};

}  // namespace

Tensors run_on_demand(Function fn, const Tensors& inputs, const Options& options) {
  first_defined(inputs, options);
  if (runs_plainly(inputs)) return fn(inputs);
  auto dropped = std::make_shared<DroppedTensors>(std::move(fn), inputs, options);
  const hooks::ScopedHooks scope(std::make_shared<DropHooks>(dropped), DroppedTensors::kOfARegion);
  return dropped->run(inputs);
}

}  // namespace overdrive::checkpoint
