// Ends processes in every way that programs do, with the engine installed. Each ends with the status of its
// choice.
#include "test/support/pch.h"
#include "test/support/program_cases.h"

namespace {

using namespace overdrive::test;

class Exit : public testing::TestWithParam<std::string> {};

TEST_P(Exit, IsCleanWithTheEngineInstalled) {
  const ChildResult child = run_child({OVERDRIVE_EXIT_PROGRAM, GetParam()});
  EXPECT_EQ(child.exit_status, 7) << "the status that the program chose";
  EXPECT_EQ(child.err, "");
}

INSTANTIATE_TEST_SUITE_P(Program, Exit, testing::ValuesIn(cases_of(OVERDRIVE_EXIT_PROGRAM)),
                         [](const auto& row) { return row.param; });

TEST(ExitProgram, HasItsCases) { EXPECT_EQ(cases_of(OVERDRIVE_EXIT_PROGRAM).size(), 18); }

}  // namespace
