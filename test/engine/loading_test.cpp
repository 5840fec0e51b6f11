// A library's constructor installs while another thread is inside the library: see Note [Loader's lock] in
// engine/install.cpp.
#include "test/support/pch.h"
#include "test/support/program_cases.h"

namespace {

using namespace overdrive::test;

class Loading : public testing::TestWithParam<std::string> {};

TEST_P(Loading, EndsWhenTheConstructorInstalls) {
  const ChildResult program = run_child({OVERDRIVE_LOADING_PROGRAM, GetParam()});
  EXPECT_EQ(program.exit_status, 0);
  EXPECT_EQ(program.err, "");
}

INSTANTIATE_TEST_SUITE_P(Program, Loading, testing::ValuesIn(cases_of(OVERDRIVE_LOADING_PROGRAM)),
                         [](const auto& row) { return row.param; });

}  // namespace
