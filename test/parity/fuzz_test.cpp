// Random programs on stock and on Overdrive: nothing that a program can see differs, and from 2,000
// programs on no cell of the coverage table is empty.
#include "test/parity/fuzz/fuzz.h"
#include "test/support/pch.h"
#include "test/support/sanitized.h"

namespace {

// A sanitizer makes each program several times slower, and looks at every byte instead.
const int kPrograms = overdrive::test::sanitized() ? 1'000 : 2'000;

TEST(Fuzz, RandomProgramsSeeNoDifference) {
  overdrive::fuzz::FuzzOptions options;
  options.programs = kPrograms;
  options.seed = 1;
  EXPECT_EQ(overdrive::fuzz::run(options), 0);
}

}  // namespace
