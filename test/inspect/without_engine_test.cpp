// Tools that would see nothing on another engine say so when they are made.
#include "engine/engine.h"
#include "inspect/inspect.h"

#include "test/support/error_of.h"
#include "test/support/pch.h"

namespace {

using namespace overdrive;
using test::error_of;

class WithoutTheEngine : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(installed()); }
  static void expect_refusal(const std::string& what, const std::function<void()>& make) {
    EXPECT_THAT(error_of(make), testing::AllOf(testing::StartsWith(what),
                                               testing::HasSubstr("Call overdrive::install() first.")));
  }
};

TEST_F(WithoutTheEngine, ToolsAreRefusedByName) {
  bool ran = false;
  const auto step = [&] { ran = true; };
  expect_refusal("A profile shows", [&] { profile(step); });
  expect_refusal("A memory timeline names", [&] { memory_timeline(step); });
  expect_refusal("A NanWatch watches", [] { NanWatch watch; });
  expect_refusal("A StopScope stops", [] { StopScope scope{CancelToken()}; });
  expect_refusal("on_backward() follows", [] { const auto scope = on_backward({}); });
  EXPECT_FALSE(ran);
}

TEST_F(WithoutTheEngine, ARefusedScopeLeavesNothingBehind) {
  CancelToken token;
  token.cancel();
  expect_refusal("A StopScope stops", [&] { StopScope scope(token); });
  const ScopedInstall engine;
  const auto x = torch::ones({2}, torch::requires_grad());
  x.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
