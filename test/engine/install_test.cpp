#include "engine/engine.h"

#include "test/support/pch.h"

namespace {

using torch::autograd::Engine;

TEST(Install, MakesOverdriveTheDefaultEngineAndPutsTheBaseEngineBack) {
  EXPECT_FALSE(overdrive::installed());
  {
    overdrive::ScopedInstall scope;
    EXPECT_TRUE(overdrive::installed());
    auto x = torch::ones({2}, torch::requires_grad());
    (x * 3).sum().backward();
    EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
  }
  EXPECT_FALSE(overdrive::installed());
  EXPECT_EQ(&Engine::get_default_engine(), &Engine::get_base_engine());
}

}  // namespace
