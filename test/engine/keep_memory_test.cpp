// What keep_memory() does to glibc's heap, and what Overdrive does by itself, seen in page faults. In processes
// of their own: the setting is the process's, and what a heap looks like depends on everything before.
#include "engine/keep_memory.h"

#include "engine/base/control_group.h"
#include "engine/base/glibc_heap.h"
#include "test/support/child_process.h"
#include "test/support/pch.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

using namespace overdrive::test;
using testing::HasSubstr;

constexpr long long kMiB = 1 << 20;

// A sixteenth of what this machine's control groups allow, at most 256 MiB.
long long own_limit() {
  return static_cast<long long>(std::min<uint64_t>(256 * kMiB, overdrive::base::memory_limit() / 16));
}

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
  EXPECT_TRUE(ours.limit == own_limit() || (ours.limit == 0 && ours.faults == 0)) << ours.limit;
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
  using Limits = std::pair<long long, long long>;  // with the engine, and after uninstall()
  const auto limits_after = [](const std::vector<std::string>& chosen) {
    std::vector<std::string> call{OVERDRIVE_KEEP_MEMORY_PROGRAM, "faults"};
    call.insert(call.end(), chosen.begin(), chosen.end());
    const ChildResult child = run_child(call);
    EXPECT_EQ(child.exit_status, 0) << child.err;
    Limits limits{-1, -1};
    EXPECT_EQ(std::sscanf(child.out.c_str(), "limit %lld without %lld", &limits.first, &limits.second), 2)
        << child.out;
    return limits;
  };
  EXPECT_EQ(limits_after({}), Limits(own_limit(), 0))
      << "Overdrive's own choice, so these steps do call for one";
  EXPECT_EQ(limits_after({"0"}), Limits(0, 0));
  EXPECT_EQ(limits_after({"64"}), Limits(64 * kMiB, 64 * kMiB));
}

TEST(KeepMemory, IsGivenBackAtUninstall) {
  for (const bool asked : {false, true}) {
    std::vector<std::string> call{OVERDRIVE_KEEP_MEMORY_PROGRAM, "given_back"};
    if (asked) call.emplace_back("asked");
    const ChildResult child = run_child(call);
    ASSERT_EQ(child.exit_status, 0) << child.err;
    std::istringstream lines(child.out);
    int rounds = 0;
    for (std::string line; std::getline(lines, line); ++rounds) {
      long kept = -1, back = -1;
      long long limit = -1, limit_back = -1;
      ASSERT_EQ(std::sscanf(line.c_str(), "kept %ld limit %lld back %ld limit %lld", &kept, &limit, &back,
                            &limit_back),
                4)
          << line;
      EXPECT_LT(kept, 10);
      EXPECT_EQ(limit, 64 * kMiB);
      EXPECT_EQ(limit_back, asked ? 32 * kMiB : 0) << "what the program asked for stays";
      if (!asked) {
        EXPECT_GT(back, 1000);
      }
    }
    EXPECT_EQ(rounds, 2);
  }
}

TEST(KeepMemory, IsAsItWasAfterAnInstallThatFails) {
  const ChildResult child =
      run_child({OVERDRIVE_KEEP_MEMORY_PROGRAM, "refused"}, {{"OVERDRIVE_TRACE", "/no such folder/trace"}});
  EXPECT_EQ(child.out, "failed 1 installed 0 limit 0\n") << child.err;
}

TEST(ControlGroups, LimitMemoryByTheLeastOfThoseAround) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("overdrive_groups_" + std::to_string(getpid()));
  const auto write = [&](const std::string& name, const std::string& text) {
    const auto path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  const overdrive::base::ControlGroups groups{folder / "sys", folder / "mine"};
  EXPECT_EQ(memory_limit(groups), UINT64_MAX);
  write("mine", "0::/a/b\n");
  write("sys/a/b/memory.max", "max\n");
  EXPECT_EQ(memory_limit(groups), UINT64_MAX);
  write("sys/a/memory.max", "1000\n");
  EXPECT_EQ(memory_limit(groups), 1000);
  write("sys/memory.max", "2000\n");
  EXPECT_EQ(memory_limit(groups), 1000);
  write("mine", "4:memory:/c\n0::/\n");
  EXPECT_EQ(memory_limit(groups), 2000);
  write("sys/memory/c/memory.limit_in_bytes", "500\n");
  EXPECT_EQ(memory_limit(groups), 500);
  fs::remove_all(folder);
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
