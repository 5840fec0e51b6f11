// Random programs on stock, and on Overdrive with every saved tensor packed and unpacked: nothing that a
// program can see differs but the memory it takes.
#include "hooks/hooks.h"
#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/support/pch.h"

namespace overdrive::fuzz {
namespace {

constexpr uint64_t kPrograms = 200;

Contender under(const std::string& name, const hooks::HooksPtr& packer) {
  Contender contender = ours();
  contender.name += " under " + name;
  contender.on_lane = [packer] { return std::make_shared<hooks::ScopedHooks>(packer); };
  contender.may_take_more_memory = true;
  return contender;
}

// Packs what it unpacks to, so that nothing is left of the tensor that was saved.
hooks::HooksPtr copies() {
  return hooks::make_hooks(
      [](const at::Tensor& tensor, const hooks::SaveInfo&) {
        return hooks::Packed{{tensor.clone()}, {}};
      },
      [](hooks::Packed& packed, const hooks::UnpackInfo&) { return packed.tensors[0].clone(); },
      {.name = "copies", .lossless = true});
}

class FuzzHooks : public testing::TestWithParam<std::string> {
 protected:
  static hooks::HooksPtr packer() {
    if (GetParam() == "keep") return hooks::keep();
    if (GetParam() == "copies") return copies();
    const auto disk = hooks::spill_to_disk({.folder = {}, .min_bytes = 0});
    return GetParam() == "spill" ? disk : hooks::compose(copies(), disk);
  }
};

TEST_P(FuzzHooks, SeeNoDifference) {
  prepare();
  const Contender hooked = under(GetParam(), packer());
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    stock().enter();
    Program program = generate(seed);
    // What a SavedVariable owns without hooks is owned by ours, so things die in another order.
    program.watch.lifetimes = false;
    const auto difference = compare(program, stock(), hooked);
    ASSERT_FALSE(difference) << "program " << seed << ", after\n  " << difference->before << "\nstock shows\n  "
                             << difference->left << "\nand we\n  " << difference->right;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzHooks, testing::Values("keep", "copies", "spill", "composed"),
                         [](const auto& packer) { return packer.param; });

}  // namespace
}  // namespace overdrive::fuzz
