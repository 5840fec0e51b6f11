#include "bench/support/text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace overdrive::bench {

namespace {

constexpr size_t kWidthOfAnInterval = 22;

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

std::string with_interval(double middle, double lo, double hi) {
  return format("%.3f [%.3f, %.3f]", middle, lo, hi);
}

size_t terminal_columns() {
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string fitted(const std::string& line, size_t columns) {
  constexpr size_t kLeast = 20;
  std::string text, rest = line;
  const std::string indent(line.starts_with("  ") ? 6 : 4, ' ');
  while (columns >= kLeast && rest.size() > columns) {
    size_t space = rest.rfind(' ', columns);
    if (space == std::string::npos || space < indent.size()) space = rest.find(' ', columns);
    if (space == std::string::npos) break;
    text += rest.substr(0, rest.find_last_not_of(' ', space) + 1) + "\n";
    rest = indent + trimmed(rest.substr(space));
  }
  return text + rest + "\n";
}

TextTable::TextTable(std::vector<Column> columns, size_t terminal)
    : columns_(std::move(columns)), terminal_(terminal) {
  size_t width = columns_.size();
  for (const Column& column : columns_) {
    width += std::max({static_cast<size_t>(std::abs(column.width)), std::strlen(column.title),
                       column.width == 0 ? kWidthOfAnInterval : 0});
  }
  fits_ = terminal_ == 0 || width <= terminal_;
}

std::string TextTable::across(const std::vector<std::string>& cells) const {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    line += (i > 0 ? " " : "") + format("%*s", columns_[i].width, cells[i].c_str());
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string TextTable::head() const {
  if (!fits_) return "";  // each figure has its title then
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  return across(titles);
}

std::string TextTable::row(const std::vector<std::string>& cells) const {
  if (fits_) return across(cells);
  std::string line = "    ", text = fitted(cells.at(0), terminal_);
  for (size_t i = 1; i < cells.size(); ++i) {
    if (trimmed(cells[i]).empty()) continue;
    const std::string title = trimmed(columns_[i].title);
    const std::string figure =
        title + (title.empty() ? "" : " ") + trimmed(cells[i]) + (i + 1 < cells.size() ? "; " : "");
    if (line.size() > 4 && line.size() + figure.size() > terminal_ + 1) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line = "    ";
    }
    line += figure;
  }
  return trimmed(line).empty() ? text
                               : text + fitted(line.substr(0, line.find_last_not_of(' ') + 1), terminal_);
}

}  // namespace overdrive::bench
