// Two thousand random programs on stock and on Overdrive: nothing that a program can see differs,
// and no cell of the coverage table is empty.
#include "test/parity/fuzz/fuzz.h"
#include "test/support/pch.h"

namespace {

TEST(Fuzz, TwoThousandProgramsSeeNoDifference) {
  overdrive::fuzz::FuzzOptions options;
  options.programs = 2000;
  options.seed = 1;
  EXPECT_EQ(overdrive::fuzz::run(options), 0);
}

}  // namespace
