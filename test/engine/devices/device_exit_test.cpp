// Ends processes in every way that programs do, while workers of devices are alive.
#include "test/support/pch.h"
#include "test/support/program_cases.h"

namespace {

using namespace overdrive::test;

class DeviceExit : public testing::TestWithParam<std::string> {};

TEST_P(DeviceExit, IsCleanWithLiveWorkers) {
  const ChildResult child = run_child({OVERDRIVE_DEVICE_EXIT_PROGRAM, GetParam()});
  EXPECT_EQ(child.exit_status, 7) << "the status that the program chose";
  EXPECT_EQ(child.err, "");
}

INSTANTIATE_TEST_SUITE_P(Program, DeviceExit, testing::ValuesIn(cases_of(OVERDRIVE_DEVICE_EXIT_PROGRAM)),
                         [](const auto& row) { return row.param; });

TEST(DeviceExitProgram, HasItsCases) { EXPECT_EQ(cases_of(OVERDRIVE_DEVICE_EXIT_PROGRAM).size(), 10); }

}  // namespace
