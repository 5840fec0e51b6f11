#include "hooks/interface/saved_tensor_hooks.h"

#include "engine/base/torch_types.h"

#include <c10/util/Type.h>

#include <typeinfo>
#include <utility>

namespace overdrive::hooks {

std::string SaveInfo::op() const {
  if (node != nullptr) return node->name();
  return node_name != nullptr ? *node_name : std::string();
}

SavedTensorHooks::~SavedTensorHooks() = default;
void SavedTensorHooks::expect(const Packed&) {}
bool SavedTensorHooks::wants(const at::Tensor&, const SaveInfo&) { return true; }
bool SavedTensorHooks::lossless() const { return false; }
std::optional<Schedule> SavedTensorHooks::schedule() const { return std::nullopt; }
std::string SavedTensorHooks::name() const { return c10::demangle(typeid(*this).name()); }

namespace {
class FunctionHooks final : public SavedTensorHooks {
 public:
  FunctionHooks(PackFunction pack, UnpackFunction unpack, HookTraits traits)
      : pack_(std::move(pack)), unpack_(std::move(unpack)), traits_(std::move(traits)) {}

  Packed pack(const at::Tensor& tensor, const SaveInfo& info) override { return pack_(tensor, info); }
  at::Tensor unpack(Packed& packed, const UnpackInfo& info) override { return unpack_(packed, info); }
  bool lossless() const override { return traits_.lossless; }
  std::string name() const override { return traits_.name; }

 private:
  const PackFunction pack_;
  const UnpackFunction unpack_;
  const HookTraits traits_;
};

}  // namespace

HooksPtr make_hooks(PackFunction pack, UnpackFunction unpack, HookTraits traits) {
  TORCH_CHECK(pack && unpack, "Saved-tensor hooks \"", traits.name,
              "\" need both a pack and an unpack function.");
  return std::make_shared<FunctionHooks>(std::move(pack), std::move(unpack), std::move(traits));
}

}  // namespace overdrive::hooks
