// A program of its own: it says it runs LibTorch 99.1.2, by a symbol that comes before LibTorch's.
#include "engine/c_api.h"
#include "engine/engine.h"
#include "replay/file/step_file.h"

#include "test/support/pch.h"

extern "C" __attribute__((visibility("default"))) uint64_t aoti_torch_abi_version() {
  return 0x6301'0200'0000'0000;
}

namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(HostMismatch, MakesInstallThrowAndNameBothVersions) {
  EXPECT_EQ(overdrive::engine::running_torch(), "99.1.2");
  try {
    overdrive::install();
    FAIL() << "installed";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), AllOf(HasSubstr(overdrive::engine::built_for_torch()), HasSubstr("99.1.2"),
                                   HasSubstr("minor")));
  }
  EXPECT_THROW(overdrive::ScopedInstall(), c10::Error);
  EXPECT_FALSE(overdrive::installed());
}

TEST(HostMismatch, IsAZeroAndATextInC) {
  EXPECT_EQ(overdrive_install(), 0);
  EXPECT_THAT(overdrive_last_error(), HasSubstr("99.1.2"));
  EXPECT_EQ(overdrive_uninstall(), 1);
  EXPECT_STREQ(overdrive_last_error(), "");
}

TEST(HostMismatch, IsAnErrorOfAStepFile) {
  try {
    overdrive::load_step("step.od");
    FAIL() << "loaded";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), AllOf(HasSubstr("step.od"), HasSubstr("runs in LibTorch 99.1.2")));
  }
}

TEST(HostMismatch, LeavesTheStockEngineAtWork) {
  auto x = torch::ones({2}, torch::requires_grad());
  (x * 3).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
}

}  // namespace
