// Stretches that repeat, found in a list of numbers.
#include "inspect/graph/repeated_blocks.h"

#include "test/support/pch.h"

namespace overdrive::inspect {

bool operator==(const Repetition& a, const Repetition& b) {
  return a.first == b.first && a.period == b.period && a.count == b.count;
}

namespace {

using Found = std::vector<Repetition>;

TEST(RepeatedBlocks, AreTheLongestStretchesFromTheLeft) {
  EXPECT_EQ(find_repetitions({9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8}), (Found{{1, 3, 3}}));
  EXPECT_EQ(find_repetitions({1, 1, 2, 1, 1, 2, 1, 1, 2}), (Found{{0, 3, 3}}));
  EXPECT_EQ(find_repetitions({5, 5, 5, 5, 5, 5, 5}), (Found{{0, 1, 7}}));
}

TEST(RepeatedBlocks, AreNotMadeOfAFewEqualNeighbours) {
  EXPECT_EQ(find_repetitions({1, 1, 2, 2, 3, 3}), Found{});
  EXPECT_EQ(find_repetitions({}), Found{});
  EXPECT_EQ(find_repetitions({4}), Found{});
}

TEST(RepeatedBlocks, OfALongListAreFoundInTime) {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < 200000; ++i) values.push_back(i % 7);
  EXPECT_EQ(find_repetitions(values), (Found{{0, 7, 28571}}));
}

}  // namespace
}  // namespace overdrive::inspect
