// Forks processes with the engine installed; programs/fork_program.cpp says when and looks inside.
#include "test/support/child.h"
#include "test/support/pch.h"
#include "test/support/program_cases.h"

namespace {

using namespace overdrive::test;

class Fork : public testing::TestWithParam<std::string> {};

TEST_P(Fork, LeavesAChildThatTrains) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  const ChildResult program = run_child({OVERDRIVE_FORK_PROGRAM, GetParam()});
  EXPECT_EQ(program.exit_status, 0);
  EXPECT_EQ(program.err, "");
}

INSTANTIATE_TEST_SUITE_P(Program, Fork, testing::ValuesIn(cases_of(OVERDRIVE_FORK_PROGRAM)),
                         [](const auto& row) { return row.param; });

TEST(ForkProgram, HasItsCases) { EXPECT_EQ(cases_of(OVERDRIVE_FORK_PROGRAM).size(), 10); }

}  // namespace
