// Levels and threads: who is inside what, and many at once.
#include "test/forward_ad/forward_ad_fixture.h"

#include <ATen/ThreadLocalState.h>

#include <random>
#include <thread>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;

class Threads : public ForwardAdTest {
 protected:
  // Runs on a new thread, which must leave nothing behind.
  template <typename Action>
  static void elsewhere(Action action) {
    std::thread([&] {
      action();
      EXPECT_TRUE(active_levels().empty());
      EXPECT_TRUE(at::functorch::getDynamicLayerStack().empty());
    }).join();
  }
};

TEST_F(Threads, AThreadThatDidNotEnterIsTold) {
  Tensor x = random({3});
  DualLevel level;
  Tensor dual = make_dual(x, x, level);
  elsewhere([&] {
    EXPECT_THAT(error_of([&] { unpack_dual(dual, level); }), HasSubstr("this thread has not entered it"));
    EXPECT_THAT(error_of([&] { make_dual(x, x, level); }), HasSubstr("LevelScope here(level)"));
  });
}

// LibTorch looks through the wrapper before anybody is asked: see docs/differences.md. What must not happen is
// that the tangent is mixed into something, or that the entries of the level let it pass.
TEST_F(Threads, AnOperatorOnAThreadInNoLevelComputesWithThePrimal) {
  Tensor x = random({3});
  DualLevel level;
  Tensor dual = make_dual(x, x, level), result = dual * 2, made_there;
  elsewhere([&] {
    made_there = dual * result;
    EXPECT_TRUE(close(made_there, x * 2 * x));
    EXPECT_FALSE(made_there._fw_grad(0).defined());
    EXPECT_THAT(error_of([&] { unpack_dual(result, level); }), HasSubstr("this thread has not entered it"));
  });
  EXPECT_FALSE(unpack_dual(made_there, level).tangent.defined());
}

// Its thread_local is made before the thread's first level, so it goes after everything that the level has
// made.
TEST_F(Threads, ATensorThatAThreadLocalFreesMayRunAPass) {
  struct Last {
    std::function<void()> action;
    ~Last() { action(); }
  };
  const Tensor x = random({3});
  const auto pass = [&x] {
    const auto [value, slope] = jvp([](const Tensor& t) { return t.sin(); }, x, x);
    EXPECT_TRUE(close(slope, x.cos() * x));
  };
  bool was_run = false;
  std::thread([&] {
    thread_local Last last;
    last.action = [&] {
      // Blocks take the places of all that is gone.
      std::vector<std::string> blocks;
      for (size_t size = 16; size < 2000; size += 16) blocks.insert(blocks.end(), 8, std::string(size, 'x'));
      const std::vector<std::string> before = blocks;
      pass();
      EXPECT_EQ(blocks, before);
      was_run = true;
    };
    pass();
  }).join();
  EXPECT_TRUE(was_run);
}

TEST_F(Threads, AThreadWithALevelOfItsOwnIsToldToo) {
  Tensor x = random({3});
  DualLevel level;
  Tensor dual = make_dual(x, x, level), result = dual * 2;
  std::string name = "level " + std::to_string(level.idx());
  elsewhere([&] {
    DualLevel own;  // takes the same place on this thread's stack
    EXPECT_THAT(error_of([&] { (void)(dual * 2); }),
                HasSubstr(name + " is used on a thread that has not entered"));
    EXPECT_THAT(error_of([&] { unpack_dual(dual, own); }),
                HasSubstr(name + " is used on a thread that has not"));
    EXPECT_THAT(error_of([&] { unpack_dual(result, own); }), HasSubstr("belongs to " + name));
    EXPECT_THAT(error_of([&] { make_dual(result, x, own); }), HasSubstr("belongs to " + name));
  });
}

TEST_F(Threads, AThreadEntersALevelAndLeavesIt) {
  Tensor x = random({3}), v = random({3}), w = random({3});
  DualLevel outer, level;
  Tensor dual = make_dual(make_dual(x, v, outer), w, level), result;
  elsewhere([&] {
    LevelScope here(level);
    result = dual * dual;
    EXPECT_TRUE(close(unpack_dual(unpack_dual(result, level).tangent, outer).tangent, 2 * v * w));
    EXPECT_TRUE(close(jvp([&](const Tensor& t) { return t * dual; }, x, x).value, x * x));
  });
  EXPECT_TRUE(close(unpack_dual(unpack_dual(result, level).tangent, outer).tangent, 2 * v * w));
}

TEST_F(Threads, AScopeHidesTheThreadsOwnLevels) {
  Tensor x = random({3});
  DualLevel level;
  Tensor dual = make_dual(x, x, level);
  elsewhere([&] {
    DualLevel own;
    Tensor mine = make_dual(x, x, own);
    {
      LevelScope here(level);
      EXPECT_TRUE(close(unpack_dual(dual * 3, level).tangent, 3 * x));
      EXPECT_THAT(error_of([&] { unpack_dual(mine, own); }), HasSubstr("has not entered it"));
    }
    EXPECT_TRUE(close(unpack_dual(mine * 3, own).tangent, 3 * x));
  });
}

TEST_F(Threads, ALevelIsNotClosedWhileAnotherThreadIsInside) {
  DualLevel level;
  elsewhere([&] {
    LevelScope here(level);
    EXPECT_THAT(error_of([&] { level.close(); }), HasSubstr("another thread opened it"));
  });
  LevelScope again(level);  // the opener may enter, too
  EXPECT_THAT(error_of([&] { level.close(); }), HasSubstr("1 other scope(s) are inside it"));
}

TEST_F(Threads, AThreadOfAPoolHasTheLevelsOfItsCaller) {
  Tensor x = random({3});
  DualLevel level;
  Tensor dual = make_dual(x, x, level);
  at::ThreadLocalState callers;
  elsewhere([&] {
    {
      at::ThreadLocalStateGuard guard(callers);
      EXPECT_TRUE(close(unpack_dual(dual * 3, level).tangent, 3 * x));
      EXPECT_TRUE(close(jvp([&](const Tensor& t) { return t * dual; }, x, x).value,
                        unpack_dual(dual * x, level).primal));
      DualLevel inside;
      Tensor both = make_dual(x, x, inside) * dual;
      EXPECT_TRUE(close(unpack_dual(unpack_dual(both, inside).tangent, level).tangent, x * x));
    }
  });
}

Tensor random_use(std::mt19937& random, const Tensor& x, int depth) {
  if (depth == 0) return x * x * x;
  auto inner = [&](const Tensor& t) { return random_use(random, t, depth - 1); };
  switch (random() % 4) {
    case 0:
      return jvp(inner, x, at::ones_like(x)).tangent;
    case 1: {
      auto r = vjp(inner, x);
      return r.pullback(at::ones_like(r.value));
    }
    case 2: {
      DualLevel level;
      return unpack_dual(inner(make_dual(x, at::ones_like(x), level)), level).tangent;
    }
    default: {
      DualLevel level;
      try {
        inner(make_dual(x, at::ones_like(x), level)).view({17});
      } catch (const c10::Error&) {
      }
      return unpack_dual(inner(make_dual(x, at::ones_like(x), level)), level).tangent;
    }
  }
}

TEST_F(Threads, EightThreadsOpenAndCloseTwoHundredLevelsEach) {
  constexpr int kThreads = 8, kLevels = 200;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      std::mt19937 random(seed + t);
      // Derivatives of x^3 at 2: 12, 12, 6.
      const double want[] = {8, 12, 12, 6};
      for (int opened = 0; opened < kLevels;) {
        int depth = 1 + static_cast<int>(random() % 3);
        opened += depth;
        Tensor x = at::full({2}, 2.0, at::kDouble);
        EXPECT_TRUE(close(random_use(random, x, depth), at::full({2}, want[depth], at::kDouble)));
      }
      EXPECT_TRUE(active_levels().empty());
      EXPECT_TRUE(at::functorch::getDynamicLayerStack().empty());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Threads, ManyThreadsWorkInsideOneLevel) {
  Tensor x = random({4}), v = random({4});
  DualLevel level;
  Tensor dual = make_dual(x, v, level);
  std::vector<Tensor> results(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      LevelScope here(level);
      for (int i = 0; i < 20; ++i) results[t] = dual * make_dual(x, v, level) * static_cast<double>(t);
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t) {
    EXPECT_TRUE(close(unpack_dual(results[t], level).tangent, 2 * x * v * static_cast<double>(t)));
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
