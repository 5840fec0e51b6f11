// The registry is the only way in and out: with a broken one in its place, the drivers
// fail rather than go round it.
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;

class BrokenRegistry : public ForwardAdTest {
 protected:
  // Every driver gives an error, or a result that is wrong.
  void expect_that_drivers_fail(LevelRegistry& broken) {
    Tensor x = at::full({2}, 3.0, at::kDouble), v = at::ones({2}, at::kDouble);
    auto cubes = [](const Tensor& t) { return t * t * t; };
    auto sum = [&](const Tensor& t) { return cubes(t).sum(); };
    LevelRegistry* own = LevelRegistry::exchange(&broken);
    auto fails = [](const char* driver, const Tensor& want, auto compute) {
      try {
        EXPECT_FALSE(close(compute(), want)) << driver << " does not use the registry";
      } catch (const c10::Error&) {
      }
      at::functorch::setDynamicLayerStack({});  // what a broken registry does not clean up
      at::functorch::setDynamicLayerFrontBackKeysIncluded(false);
      set_active_levels({});
    };
    fails("jvp", 3 * x * x, [&] { return jvp(cubes, x, v).tangent; });
    fails("hvp", 6 * x, [&] { return hvp(sum, x, v).product; });
    fails("jacfwd", at::diag(3 * x * x), [&] { return jacfwd(cubes, x); });
    fails("hessian", at::diag(6 * x), [&] { return hessian(sum, x); });
    fails("nth_derivative", 6 * v, [&] { return nth_derivative(cubes, x, 3); });
    LevelRegistry::exchange(own);
  }
};

class KnowsNoLevel : public LevelRegistry {
 public:
  std::shared_ptr<ForwardADLevel> get_by_idx(uint64_t idx) override { TORCH_CHECK(false, "no level ", idx); }
};

class OpensNone : public LevelRegistry {
 public:
  uint64_t get_next_idx() override { TORCH_CHECK(false, "no more levels"); }
};

// Its levels drop each tangent at once.
class ForgetsTangents : public LevelRegistry {
 public:
  std::shared_ptr<ForwardADLevel> get_by_idx(uint64_t idx) override {
    auto level = LevelRegistry::get_by_idx(idx);
    level->release();
    return level;
  }
};

TEST_F(BrokenRegistry, ThatOpensNoLevelStopsTheDrivers) {
  OpensNone registry;
  expect_that_drivers_fail(registry);
}

TEST_F(BrokenRegistry, ThatKnowsNoLevelStopsTheDrivers) {
  KnowsNoLevel registry;
  expect_that_drivers_fail(registry);
}

TEST_F(BrokenRegistry, ThatForgetsTangentsStopsTheDrivers) {
  ForgetsTangents registry;
  expect_that_drivers_fail(registry);
}

}  // namespace
}  // namespace overdrive::forward_ad
