// Random programs on stock and on Overdrive: nothing that a program can see differs, and from 2,000
// programs on no cell of the coverage table is empty.
#include "test/parity/fuzz/fuzz.h"
#include "test/support/pch.h"

namespace {

// A sanitizer makes each program several times slower, and looks at every byte instead.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kPrograms = 1000;
#else
constexpr int kPrograms = 2000;
#endif

TEST(Fuzz, RandomProgramsSeeNoDifference) {
  overdrive::fuzz::FuzzOptions options;
  options.programs = kPrograms;
  options.seed = 1;
  EXPECT_EQ(overdrive::fuzz::run(options), 0);
}

}  // namespace
