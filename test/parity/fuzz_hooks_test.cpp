// Random programs on stock, and on Overdrive with every saved tensor packed and unpacked: nothing that a
// program can see differs but the memory it takes.
#include "hooks/hooks.h"
#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/support/pch.h"

namespace overdrive::fuzz {
namespace {

constexpr uint64_t kPrograms = 120;

void drop(std::string& line, const std::string& from, const std::string& to) {
  const size_t begin = line.find(from);
  const size_t end = line.find(to, begin);
  if (begin != std::string::npos && end != std::string::npos) line.erase(begin, end - begin);
}

void drop_what_differs(std::string& line) {
  // The error of a tensor that was changed in place, which stock describes as it is now, and ours as it was:
  // see InPlace.TheMessageNamesTheNodeThatMadeTheTensor.
  drop(line, "modified by an inplace operation: ", " is at version ");
  // The thread's sequence number: unpacking a view that was changed in place makes it a node, without hooks.
  drop(line, " seq ", " grad ");
}

// Without what LibTorch itself does for hooks: memory, and shallow copies of nested and sparse tensors, of
// which it warns.
Observation look_at(const Program& program, const std::function<void()>& on_switch, const LaneScope& on_lane) {
  Observation seen = observe(program, nullptr, on_switch, on_lane);
  seen.peaks.clear();
  std::erase_if(seen.lines, [](const std::string& line) {
    // A node that dies while somebody holds it weakly, as ours do, lets go in two steps; "will release" stays.
    if (line.starts_with("node ") && line.ends_with(" release") && !line.ends_with("will release")) return true;
    return line.starts_with("warning: The PyTorch API of nested tensors is in prototype stage") ||
           line.starts_with("warning: Sparse CSR tensor support is in beta state");
  });
  for (std::string& line : seen.lines) drop_what_differs(line);
  return seen;
}

std::optional<Difference> compare_under(const hooks::HooksPtr& packer, const Program& program) {
  stock().enter();
  const Observation plain = look_at(program, {}, {});
  ours().enter();
  bool on_stock = false;
  const auto on_switch = [&] {
    on_stock = !on_stock;
    (on_stock ? stock() : ours()).enter();
  };
  const Observation hooked =
      look_at(program, on_switch, [&] { return std::make_shared<hooks::ScopedHooks>(packer); });
  stock().enter();
  return compare(plain, hooked);
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
    if (GetParam() == "scheduled") return hooks::schedulable(copies(), {.window_tensors = 3, .depth = 5});
    const auto disk = hooks::spill_to_disk({.folder = {}, .min_bytes = 0});
    if (GetParam() == "scheduled_spill") return hooks::schedulable(disk, {.window_tensors = 0});
    return GetParam() == "spill" ? disk : hooks::compose(copies(), disk);
  }
};

TEST_P(FuzzHooks, SeeNoDifference) {
  prepare();
  const hooks::HooksPtr hooks = packer();
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    stock().enter();
    Program program = generate(seed);
    // What a SavedVariable owns without hooks is owned by ours, so things die in another order.
    program.watch.lifetimes = false;
    // Events show sequence numbers. Stock's error about a view that was changed in place asks the view for its
    // node, which takes a number; ours no longer has the view.
    program.watch.events = false;
    const auto difference = compare_under(hooks, program);
    ASSERT_FALSE(difference) << "program " << seed << ", after\n  " << difference->before << "\nstock shows\n  "
                             << difference->left << "\nand we\n  " << difference->right;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzHooks,
                         testing::Values("keep", "copies", "spill", "composed", "scheduled", "scheduled_spill"),
                         [](const auto& packer) { return packer.param; });

}  // namespace
}  // namespace overdrive::fuzz
