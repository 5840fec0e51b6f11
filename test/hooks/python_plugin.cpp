// A scope of hooks that a Python test can open and close, and how often it packed.
#include "engine/base/export.h"
#include "hooks/scope/hook_stack.h"

#include <memory>

namespace {

using namespace overdrive::hooks;

int packs = 0;
std::unique_ptr<ScopedHooks> scope;

HooksPtr counting() {
  return make_hooks(
      [](const at::Tensor& tensor, const SaveInfo&) {
        ++packs;
        return Packed{{tensor}, {}};
      },
      [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; });
}

}  // namespace

extern "C" {
OVERDRIVE_API void open_scope() { scope = std::make_unique<ScopedHooks>(counting()); }
OVERDRIVE_API void close_scope() { scope.reset(); }
OVERDRIVE_API int pack_count() { return packs; }
}
