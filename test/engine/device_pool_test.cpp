// One case only, so a process of its own: who owns the device pool is settled by the first backward.
#include "engine/engine.h"

#include "test/support/pch.h"

namespace {

using torch::Tensor;

// {x} --*2--> {y} --sum--> {loss}, and in a hook of y the same again, `levels` times.
int nested_backwards(int levels) {
  if (levels == 0) return 0;
  int inner = -1;
  const torch::AutoGradMode on(true);  // it is off inside a hook
  Tensor x = torch::ones({2}, torch::requires_grad());
  Tensor y = x * 2;
  y.register_hook([&](const Tensor&) { inner = nested_backwards(levels - 1); });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 2.0)));
  return inner + 1;
}

// Stock moves a nest of more than 60 levels to a pool of threads, which it has only if it was the
// first engine of the process to ask for one.
TEST(DevicePool, IsStocksAfterOurFirstBackwardSoThatItMayNestAHundredLevels) {
  {
    overdrive::ScopedInstall scope;
    EXPECT_EQ(nested_backwards(3), 3);
    EXPECT_EQ(overdrive::stats().backwards, 3);
  }
  EXPECT_EQ(nested_backwards(100), 100);
  EXPECT_EQ(overdrive::stats().backwards, 3);
  overdrive::ScopedInstall scope;
  EXPECT_EQ(nested_backwards(100), 100);
}

}  // namespace
