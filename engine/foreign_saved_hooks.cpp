#include "engine/foreign_saved_hooks.h"

#include "engine/base/auxiliary_span.h"
#include "engine/base/live_saved_hooks.h"

#include <utility>

namespace overdrive::engine {
namespace {

using base::AuxiliarySpan;
using torch::autograd::SavedVariableHooks;

class ForeignSavedHooks final : public SavedVariableHooks {
 public:
  explicit ForeignSavedHooks(std::unique_ptr<SavedVariableHooks> hooks) : hooks_(std::move(hooks)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (tensor.defined()) bytes_ = bytes_of(*tensor.unsafeGetTensorImpl());
    const base::AuxiliarySpanScope span([this] { return work(AuxiliarySpan::Kind::kPack); });
    hooks_->call_pack_hook(tensor);
  }
  at::Tensor call_unpack_hook() override {
    const base::AuxiliarySpanScope span([this] { return work(AuxiliarySpan::Kind::kUnpack); });
    return hooks_->call_unpack_hook();
  }
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const override {
    return hooks_->retrieve_unpack_hook_data();
  }
  // Overrides a virtual of 2.15 and later, which older versions lack.
  std::optional<c10::SafePyObject> retrieve_unpack_hook() const {
    return [](const auto& hooks) -> std::optional<c10::SafePyObject> {
      if constexpr (requires { hooks.retrieve_unpack_hook(); }) {
        return hooks.retrieve_unpack_hook();
      } else {
        return std::nullopt;
      }
    }(*hooks_);
  }

 private:
  // -1 where the answer is not to be had without code of the program.
  static int64_t bytes_of(const c10::TensorImpl& tensor) {
    if (tensor.layout() != at::kStrided || tensor.is_python_dispatch() || tensor.has_symbolic_sizes_strides()) {
      return -1;
    }
    return tensor.numel() * static_cast<int64_t>(tensor.itemsize());
  }
  AuxiliarySpan work(AuxiliarySpan::Kind kind) const {
    return {.kind = kind, .name = "saved_tensors_hooks", .bytes = bytes_};
  }

  const std::unique_ptr<SavedVariableHooks> hooks_;
  const base::LiveSavedHooks alive_;
  int64_t bytes_ = -1;
};

}  // namespace

std::unique_ptr<SavedVariableHooks> counted_and_described(std::unique_ptr<SavedVariableHooks> hooks) {
  return hooks == nullptr ? nullptr : std::make_unique<ForeignSavedHooks>(std::move(hooks));
}

}  // namespace overdrive::engine
