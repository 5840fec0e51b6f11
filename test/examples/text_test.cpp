// What the program prints fits the terminal, and is one line a row where there is none.
#include "bench/support/text.h"
#include "test/support/pch.h"

#include <sstream>

namespace {

using namespace overdrive::bench;

size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TextTable table(size_t terminal) {
  return TextTable({{"graph", -14}, {"size", 9}, {"stock ns", 30}, {"  ratio [95 %]", 0}}, terminal);
}
const std::vector<std::string> kRow{"scale_chain", "1000", "1425.3", "  0.512 [0.498, 0.530]"};

TEST(TextTable, IsOneLineARowWithoutATerminalAndOnAWideOne) {
  for (const size_t terminal : {0, 100}) {
    EXPECT_EQ(table(terminal).head(),
              "graph               size                       stock ns   ratio [95 %]\n");
    EXPECT_EQ(table(terminal).row(kRow),
              "scale_chain         1000                         1425.3   0.512 [0.498, 0.530]\n");
  }
}

TEST(TextTable, NamesEveryFigureWhereTheTerminalIsTooNarrowForColumns) {
  EXPECT_EQ(table(60).head(), "");
  EXPECT_EQ(table(60).row(kRow),
            "scale_chain\n    size 1000; stock ns 1425.3;\n    ratio [95 %] 0.512 [0.498, 0.530]\n");
  for (const size_t columns : {40, 50, 60, 70}) EXPECT_LE(longest_line(table(columns).row(kRow)), columns);
}

TEST(TextTable, LeavesOutFiguresThatAreNotThere) {
  EXPECT_EQ(table(60).row({"chain", "10", "", ""}), "chain\n    size 10;\n");
}

TEST(Fitted, BreaksALineAtSpacesAndIndentsTheRest) {
  EXPECT_EQ(fitted("one two three four five", 0), "one two three four five\n");
  EXPECT_EQ(fitted("one two three four five", 23), "one two three four five\n");
  EXPECT_EQ(fitted("one two three four five", 20), "one two three four\n    five\n");
  EXPECT_EQ(fitted("a_word_that_is_longer_than_the_line and more", 20),
            "a_word_that_is_longer_than_the_line\n    and more\n");
}

}  // namespace
