// counters.cpp is compiled into this program: the library hides it, and a registry of its own
// starts at zero.
#include "engine/base/counters.h"

#include "test/support/pch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

namespace base = overdrive::base;

class Counters : public testing::Test {
 protected:
  void SetUp() override { base::reset_counters(); }
  static uint64_t nodes() { return base::counter_totals()["nodes"]; }
};

TEST_F(Counters, SumOverThreadsThatLiveAndThreadsThatEnded) {
  count(base::counts::nodes, 5);
  std::thread([] { count(base::counts::nodes, 7); }).join();
  count(base::counts::backwards);
  EXPECT_EQ(nodes(), 12);
  EXPECT_EQ(base::counter_totals()["backwards"], 1);
  EXPECT_EQ(base::counter_totals()["threads"], 0);
}

TEST_F(Counters, LoseNothingWhenManyThreadsComeAndGoWhileAnotherReads) {
  constexpr int kThreads = 4, kRounds = 25, kEach = 1000;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    for (uint64_t last = 0; !stop;) {
      const uint64_t now = nodes();
      EXPECT_GE(now, last);  // a block that retires is never counted twice nor missed
      last = now;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < kEach; ++i) count(base::counts::nodes);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  stop = true;
  reader.join();
  EXPECT_EQ(nodes(), uint64_t{kThreads} * kRounds * kEach);
}

struct CountsInItsDestructor {
  ~CountsInItsDestructor() { count(base::counts::nodes, 3); }
};

TEST_F(Counters, CountInDestructorsOfThreadLocals) {
  std::thread([] {
    thread_local CountsInItsDestructor made_before_the_block;
    (void)&made_before_the_block;
    count(base::counts::nodes);
    thread_local CountsInItsDestructor made_after_it;
    (void)&made_after_it;
  }).join();
  EXPECT_EQ(nodes(), 7);
}

TEST_F(Counters, CountInAKeyDestructorThatRunsAfterTheBlockHasRetired) {
  static pthread_key_t late;  // made after the registry's own key, so its destructor runs later
  count(base::counts::nodes, 0);
  ASSERT_EQ(pthread_key_create(&late, [](void*) { count(base::counts::nodes, 11); }), 0);
  std::thread([] {
    count(base::counts::nodes);
    pthread_setspecific(late, &late);
  }).join();
  EXPECT_EQ(nodes(), 12);
  pthread_key_delete(late);
}

// The death test runs in a process of its own, where the registry is still to be made.
TEST(CountersWithoutAKey, LeaveTheKeysOfOthersAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto counts_without_a_key = [] {
    for (pthread_key_t another = 0; pthread_key_create(&another, nullptr) == 0;) {
    }
    bool untouched = false;
    std::thread([&untouched] {
      constexpr pthread_key_t kFirst = 0;
      const void* const before = pthread_getspecific(kFirst);
      count(base::counts::nodes, 7);
      untouched = pthread_getspecific(kFirst) == before;
    }).join();
    count(base::counts::nodes);
    std::exit(untouched && base::counter_totals()["nodes"] == 8 ? 0 : 1);
  };
  EXPECT_EXIT(counts_without_a_key(), testing::ExitedWithCode(0), "");
}

TEST_F(Counters, StartAgainFromZeroAfterAResetAlsoForThreadsThatGoOnCounting) {
  count(base::counts::nodes, 100);
  base::count_forwarded("a reason");
  base::reset_counters();
  EXPECT_EQ(nodes(), 0);
  EXPECT_TRUE(base::counter_totals().forwarded.empty());
  count(base::counts::nodes, 2);
  EXPECT_EQ(nodes(), 2);
}

TEST_F(Counters, KeepForwardedCallsByReason) {
  base::count_forwarded("first");
  base::count_forwarded("second");
  std::thread([] { base::count_forwarded("first"); }).join();
  EXPECT_EQ(base::counter_totals().forwarded, (std::map<std::string, uint64_t>{{"first", 2}, {"second", 1}}));
}

TEST_F(Counters, BeginAtZeroInAChildForkedWhileAnotherThreadHeldTheRegistry) {
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    while (!stop) base::count_forwarded("busy");
  });
  const std::map<std::string, uint64_t> only_the_childs{{"in the child", 1}};
  for (int i = 0; i < 50; ++i) {
    count(base::counts::nodes);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      count(base::counts::nodes);
      base::count_forwarded("in the child");
      _exit(nodes() == 1 && base::counter_totals().forwarded == only_the_childs ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  holder.join();
}

}  // namespace
