#include "hooks/packers/keep.h"

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

}  // namespace

HooksPtr keep() { return std::make_shared<Keep>(); }

}  // namespace overdrive::hooks
