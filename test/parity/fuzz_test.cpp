// Two thousand random programs on stock and on Overdrive: nothing that a program can see differs,
// and no cell of the coverage table is empty.
#include "test/parity/fuzz/fuzz.h"
#include "test/support/pch.h"

namespace {

TEST(Fuzz, TwoThousandProgramsSeeNoDifference) {
  EXPECT_EQ(overdrive::fuzz::run({.programs = 2000, .seed = 1}), 0);
}

}  // namespace
