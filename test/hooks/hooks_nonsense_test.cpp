// Every function of hooks/ is given what makes no sense.
#include "test/hooks/hooks_fixture.h"
#include "test/support/nonsense.h"
#include "test/support/pch.h"

#include <sys/resource.h>

#include <csignal>

namespace overdrive::hooks {
namespace {

using HooksNonsense = HooksTest;

TEST_F(HooksNonsense, IsRefusedByThePackers) {
  const auto pack = [](const Tensor& t, const SaveInfo&) { return Packed::of(t); };
  const auto unpack = [](Packed& packed, const UnpackInfo&) { return packed.tensors[0]; };
  const auto type = static_cast<QuantisedType>(9);
  const auto rounding = static_cast<Rounding>(9);
  test::expect_refused({
      {"a hook without pack", [&] { make_hooks(nullptr, unpack); }, {"need both a pack and an unpack"}},
      {"a hook without unpack", [&] { make_hooks(pack, nullptr); }, {"need both a pack and an unpack"}},
      {"a filter without a condition", [&] { where(nullptr, keep()); }, {"needs a condition and hooks"}},
      {"a filter of nothing", [&] { min_bytes(1, nullptr); }, {"needs a condition and hooks"}},
      {"a negative size", [&] { min_bytes(-1, keep()); }, {"min_bytes() was given -1", "0 and more"}},
      {"no types", [&] { only_types({}, keep()); }, {"only_types() was given no types"}},
      {"none after another", [&] { compose(keep(), nullptr); }, {"null pointer in place of hooks"}},
      {"none in turn", [&] { in_turn({}); }, {"in_turn() was given no hooks"}},
      {"one in turn that is none", [&] { in_turn({nullptr}); }, {"null pointer in place of hooks"}},
      {"a schedule of none", [&] { schedulable(nullptr); }, {"schedulable() was given no hooks"}},
      {"a negative window", [&] { schedulable(keep(), {.window_bytes = -1}); }, {"window_bytes = -1"}},
      {"a negative depth", [&] { schedulable(keep(), {.depth = -1}); }, {"depth = -1"}},
      {"negative bytes ahead", [&] { schedulable(keep(), {.ahead_bytes = -1}); }, {"ahead_bytes = -1"}},
      {"recompute without a function", [&] { recompute(nullptr); }, {"recompute() needs a function"}},
      {"a type of numbers", [&] { quantise({.type = type}); }, {"type = 9", "kBFloat16 nor kInt8"}},
      {"a rounding", [&] { quantise({.rounding = rounding}); }, {"rounding = 9", "kNearest nor kStochastic"}},
      {"a block of 17", [&] { quantise({.block = 17}); }, {"blocks of 17", "power of two from 16 to 4096"}},
      {"a seed for nothing", [&] { quantise({.seed = 3}); }, {"seed with nearest rounding"}},
      {"a negative least size", [&] { quantise({.min_bytes = -4}); }, {"min_bytes = -4"}},
      {"a negative offload", [&] { offload_to_cpu({.min_bytes = -4}); }, {"offload_to_cpu", "min_bytes = -4"}},
      {"a folder that is not there",
       [&] { spill_to_disk({.folder = "/nowhere"}); },
       {"/nowhere", "Give it a folder"}},
      {"negative waiting bytes", [&] { spill_to_disk({.max_waiting_bytes = -1}); }, {"max_waiting_bytes = -1"}},
  });
}

// Every write to this file fails as on a full disk.
TEST_F(HooksNonsense, AFullDiskSaysWhatToDo) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small {
    4096, before.rlim_max
  };
  const auto disk = spill_to_disk();
  const Tensor x = leaf_of({1 << 16});
  test::expect_refused({{"a full disk",
                         [&] {
                           ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
                           const ScopedHooks scope(disk, {.skip_parameters = false});
                           Tensor y = x;
                           for (int i = 0; i < 200; ++i) y = y.sin();
                         },
                         {"spill_to_disk cannot write", "SpillOptions::folder", "min_bytes"}}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST_F(HooksNonsense, IsRefusedByScopesAndHooksOfGradients) {
  const Tensor x = leaf_of({3}), constant = at::ones({3}), none;
  const auto all = [](const std::vector<Tensor>&) {};
  const std::function<void(const Tensor&)> no_hook;
  SavedTensor saved(x);
  saved.register_hooks(keep());
  test::expect_refused({
      {"a hook of no gradients", [&] { register_multi_grad_hook({}, all); }, {"there are no tensors"}},
      {"a hook of none",
       [&] {
         register_multi_grad_hook({x, none}, all);
       },
       {"tensor 1 is undefined"}},
      {"a hook of a constant",
       [&] { register_multi_grad_hook({constant}, all); },
       {"tensor 0 does not require grad"}},
      {"an empty hook", [&] { register_multi_grad_hook({x}, no_hook); }, {"the hook is an empty function"}},
      {"hooks twice", [&] { saved.register_hooks(keep()); }, {"hooks"}},
      {"a scope where hooks are off",
       [&] {
         const auto off = overdrive::disable_saved_tensor_hooks("not in here");
         const auto scope = overdrive::save_on_cpu();
       },
       {"not in here"}},
  });
  while (!uninstall()) {
  }
  test::expect_refused({{"a scope without Overdrive",
                         [&] { const ScopedHooks scope(keep()); },
                         {"Call overdrive::install() first"}}});
  install();
}

TEST_F(HooksNonsense, IsRefusedByTheEnginesOptions) {
  const auto threads = static_cast<engine::Threads>(9);
  const auto exact = static_cast<engine::Exact>(-1);
  test::expect_refused({
      {"a negative check", [] { install({.check_every = -1}); }, {"Options::check_every is -1", "0 for none"}},
      {"threads",
       [&] { install({.threads = threads}); },
       {"Options::threads is 9", "kAuto, kCaller and kDevice"}},
      {"exact", [&] { ScopedInstall scope({.exact = exact}); }, {"Options::exact is -1"}},
      {"negative memory", [] { install({.keep_memory_mib = -2}); }, {"Options::keep_memory_mib is -2"}},
  });
}

}  // namespace
}  // namespace overdrive::hooks
