// Results as text that fits the terminal: where lines would be wider than it, tables put one figure behind the
// other, and sentences go on in the next line. Output that goes to a file is never broken. Pure functions.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace overdrive::bench {

// As printf writes it.
template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[1024];
  std::snprintf(text, sizeof(text), pattern, args...);
  return text;
}

// "0.512 [0.498, 0.530]"
std::string with_interval(double middle, double lo, double hi);

// The width of stdout's terminal; 0 where there is none.
size_t terminal_columns();

// A line with its end, broken at spaces; what goes on is indented.
std::string fitted(const std::string& line, size_t columns = terminal_columns());

struct Column {
  const char* title;
  int width;  // below 0: left-aligned; 0: as wide as its text
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns, size_t terminal = terminal_columns());

  std::string head() const;
  std::string row(const std::vector<std::string>& cells) const;

 private:
  std::string across(const std::vector<std::string>& cells) const;

  const std::vector<Column> columns_;
  const size_t terminal_;
  bool fits_ = true;
};

}  // namespace overdrive::bench
