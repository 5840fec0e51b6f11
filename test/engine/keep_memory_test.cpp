// What keep_memory() does to glibc's heap, and what Overdrive does by itself, seen in page faults. In processes
// of their own: the setting is the process's, and what a heap looks like depends on everything before.
#include "engine/keep_memory.h"

#include "engine/base/glibc_heap.h"
#include "test/support/child_process.h"
#include "test/support/pch.h"

#include <cstdio>
#include <filesystem>

namespace {

using namespace overdrive::test;
using testing::HasSubstr;

constexpr long long kMiB = 1 << 20;

struct Steps {
  long faults = -1;
  long long limit = -1;
};

Steps train(const char* engine, const Environment& set = {}) {
  const ChildResult child = run_child({OVERDRIVE_KEEP_MEMORY_PROGRAM, "mlp", engine}, set);
  EXPECT_EQ(child.exit_status, 0) << child.err;
  Steps steps;
  EXPECT_EQ(std::sscanf(child.out.c_str(), "a step %ld limit %lld", &steps.faults, &steps.limit), 2)
      << child.out;
  return steps;
}

TEST(KeepMemory, KeepsWhatIsFreeUpToTheLimitUntilItIsUndone) {
  const ChildResult child = run_child({OVERDRIVE_KEEP_MEMORY_PROGRAM, "blocks"});
  ASSERT_EQ(child.exit_status, 0) << child.err;
  long untouched = 0, kept = 0, more = 0, in_thread = 0, undone = 0;
  int set = 0;
  long long limit = 0, limit_undone = 0;
  ASSERT_EQ(std::sscanf(child.out.c_str(),
                        "untouched %ld set %d limit %lld kept %ld more %ld in_thread %ld undone %ld limit %lld",
                        &untouched, &set, &limit, &kept, &more, &in_thread, &undone, &limit_undone),
            8)
      << child.out;
  EXPECT_EQ(set, 1);
  EXPECT_EQ(limit, 64 * kMiB);
  EXPECT_GT(untouched, 1000) << "glibc gives eight blocks of 256 pages back each time";
  EXPECT_LT(kept, 10);
  EXPECT_LE(more, 72) << "MiB of 256 that were free stay";
  EXPECT_LE(in_thread, 100) << "MiB of 256 that were free stay: one heap, and a part of another";
  EXPECT_GT(undone, 1000);
  EXPECT_EQ(limit_undone, 0);
}

TEST(KeepMemory, ChangesNothingUnderAnotherAllocator) {
  int tried = 0;
  for (const char* name : {"libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libtcmalloc.so.4"}) {
    for (const char* folder :
         {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/", "/usr/lib/"}) {
      const std::string path = std::string(folder) + name;
      if (!std::filesystem::exists(path)) continue;
      ++tried;
      EXPECT_EQ(run_child({OVERDRIVE_FIXED_ADDRESS_PROGRAM}, {{"LD_PRELOAD", path}}).out, "another\n") << path;
      const ChildResult child = run_child({OVERDRIVE_KEEP_MEMORY_PROGRAM, "blocks"}, {{"LD_PRELOAD", path}});
      EXPECT_EQ(child.exit_status, 0) << child.err;
      EXPECT_THAT(child.out, HasSubstr("set 0 limit 0")) << path;
      EXPECT_EQ(train("overdrive", {{"LD_PRELOAD", path}}).limit, 0) << path;
    }
  }
  if (tried == 0)
    GTEST_SKIP() << "neither jemalloc nor tcmalloc is installed (libjemalloc2, libtcmalloc-minimal4)";
}

TEST(KeepMemory, AnMlpFaultsNoMoreUnderOverdriveThanUnderStock) {
  // How many faults glibc's own thresholds give depends on where small blocks lie: 50 a step under stock and a
  // thousand under ours, or the other way round in another process. So ours has to take next to none.
  const Steps stock = train("stock"), ours = train("overdrive");
  EXPECT_LE(ours.faults, std::max(stock.faults, 8L));
  EXPECT_EQ(stock.limit, 0);
}

TEST(KeepMemory, IsBegunByItselfOnceStepsFault) {
  EXPECT_EQ(train("stock").limit, 0);
  const Steps ours = train("overdrive");
  EXPECT_TRUE(ours.limit == 256 * kMiB || (ours.limit == 0 && ours.faults == 0)) << ours.limit;
}

TEST(KeepMemory, IsTheProgramsOrTheEnvironmentsToDecide) {
  EXPECT_EQ(train("overdrive", {{"OVERDRIVE_KEEP_MEMORY", "0"}}).limit, 0);
  EXPECT_EQ(train("overdrive", {{"OVERDRIVE_KEEP_MEMORY", "64"}}).limit, 64 * kMiB);
  EXPECT_EQ(train("overdrive", {{"MALLOC_TOP_PAD_", "131072"}}).limit, 0)
      << "the environment tunes glibc itself";
  EXPECT_EQ(train("overdrive", {{"GLIBC_TUNABLES", "glibc.malloc.top_pad=131072"}}).limit, 0);
}

// However many page faults the steps take afterwards.
TEST(KeepMemory, StaysAsTheProgramChoseBeforeItInstalled) {
  const auto limit_after = [](const std::vector<std::string>& chosen) {
    std::vector<std::string> call{OVERDRIVE_KEEP_MEMORY_PROGRAM, "faults"};
    call.insert(call.end(), chosen.begin(), chosen.end());
    const ChildResult child = run_child(call);
    EXPECT_EQ(child.exit_status, 0) << child.err;
    long long limit = -1;
    EXPECT_EQ(std::sscanf(child.out.c_str(), "limit %lld", &limit), 1) << child.out;
    return limit;
  };
  EXPECT_EQ(limit_after({}), 256 * kMiB) << "Overdrive's own choice, so these steps do call for one";
  EXPECT_EQ(limit_after({"0"}), 0);
  EXPECT_EQ(limit_after({"64"}), 64 * kMiB);
}

TEST(KeepMemory, RefusesMoreThanGlibcCanBeTold) {
  try {
    overdrive::engine::keep_memory(overdrive::engine::kMostKeptMemory + 1);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "keep_memory was asked for 2147483648 bytes, but glibc takes at most 2147483647.");
  }
}

// A bare Debian's Python, for one.
TEST(GlibcHeap, IsKnownToAProgramThatHasEntriesOfItsOwnForIt) {
  EXPECT_EQ(run_child({OVERDRIVE_FIXED_ADDRESS_PROGRAM}).out, "glibc's\n");
}

TEST(GlibcHeap, IsAskedForItsThresholdsWithoutChangingThem) {
  if (!overdrive::base::malloc_is_glibcs()) GTEST_SKIP() << "malloc is not glibc's";
  const auto first = overdrive::base::learned_heap_thresholds(),
             second = overdrive::base::learned_heap_thresholds();
  EXPECT_GE(first.mmap, size_t{64} << 10);
  EXPECT_LE(first.mmap, overdrive::base::kLargestLearnedMmapThreshold);
  EXPECT_EQ(first.mmap, second.mmap);
}

}  // namespace
