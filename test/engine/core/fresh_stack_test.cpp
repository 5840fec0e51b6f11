#include "engine/run/fresh_stack.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <stdexcept>
#include <thread>

namespace {

using overdrive::engine::call_on_fresh_stack;
using overdrive::engine::stack_is_low;

// Uses about 1 KiB of stack a level and moves on when little is left.
int descend(int levels, int& moves) {
  volatile char ballast[1024];
  ballast[levels % 1024] = static_cast<char>(levels);
  if (levels == 0) return 0;
  int below = 0;
  const auto next = [&] { below = descend(levels - 1, moves); };
  if (stack_is_low()) {
    ++moves;
    call_on_fresh_stack(next);
  } else {
    next();
  }
  return below + 1 + 0 * ballast[levels % 1024];
}

TEST(FreshStack, LetsRecursionGoFarDeeperThanTheThreadsStack) {
  int moves = 0;
  EXPECT_EQ(descend(100000, moves), 100000);
  EXPECT_GT(moves, 10);
}

TEST(FreshStack, WorksOnAThreadWithASmallStack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  int levels = 0;
  pthread_t thread;
  const auto body = [](void* out) -> void* {
    int moves = 0;
    *static_cast<int*>(out) = descend(20000, moves);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &levels), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(levels, 20000);
}

TEST(FreshStack, LetsErrorsOutWithTheirType) {
  EXPECT_THROW(call_on_fresh_stack([] { throw std::out_of_range("x"); }), std::out_of_range);
  EXPECT_THROW(call_on_fresh_stack([] { throw 42; }), int);
}

TEST(FreshStack, DestroysWhatIsOnEveryStackWhenTheThreadEnds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's own pthread_exit() stops on any stack but the thread's first";
#endif
  int destroyed = 0;
  struct Guard {
    int& count;
    ~Guard() { ++count; }
  };
  std::function<void()> body = [&] {
    const Guard outer{destroyed};
    call_on_fresh_stack([&] {
      const Guard middle{destroyed};
      call_on_fresh_stack([&] {
        const Guard inner{destroyed};
        pthread_exit(nullptr);
      });
    });
  };
  pthread_t thread;
  const auto start = [](void* out) -> void* {
    (*static_cast<std::function<void()>*>(out))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, start, &body), 0);
  pthread_join(thread, nullptr);
  EXPECT_EQ(destroyed, 3);
}

TEST(FreshStack, LetsAnErrorPassThroughManyStacks) {
  const std::function<void(int)> nest = [&](int left) {
    if (left == 0) throw std::runtime_error("bottom");
    call_on_fresh_stack([&] { nest(left - 1); });
  };
  try {
    nest(50);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "bottom");
  }
}

TEST(FreshStack, KeepsAnErrorThatIsBeingHandledAround) {
  try {
    throw std::runtime_error("outer");
  } catch (...) {
    call_on_fresh_stack([] {
      try {
        throw std::logic_error("inner");
      } catch (const std::logic_error&) {
      }
    });
    try {
      throw;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "outer");
    }
  }
}

}  // namespace
