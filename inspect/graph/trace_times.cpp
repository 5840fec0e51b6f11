// Times of nodes for a graph, from a trace of its backward. Reads the lines that a Trace writes, an event a
// line, and passes over all others.
#include "inspect/graph/graph.h"

#include <locale.h>
#include <stdlib.h>

#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

namespace overdrive::inspect {
namespace {

constexpr size_t kLongestLine = 1 << 16;

// The text behind `key`, up to one of `ends`.
std::optional<std::string_view> behind(std::string_view line, std::string_view key, std::string_view ends) {
  const size_t at = line.find(key);
  if (at == line.npos) return std::nullopt;
  line.remove_prefix(at + key.size());
  const size_t end = line.find_first_of(ends);
  if (end == line.npos) return std::nullopt;
  return line.substr(0, end);
}

std::optional<uint64_t> whole_number(std::optional<std::string_view> text) {
  uint64_t value{};
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

// As C writes it, whatever the program's locale is. The line goes on behind the text, with a character that
// ends a number. std::from_chars of a double is a function of GCC 11's library, and this one works with older
// ones.
std::optional<double> number(std::optional<std::string_view> text) {
  static const locale_t kC = newlocale(LC_ALL_MASK, "C", nullptr);
  if (!text || text->empty()) return std::nullopt;
  char* end = nullptr;
  const double value = strtod_l(text->data(), &end, kC);
  if (end != text->data() + text->size()) return std::nullopt;
  return value;
}

using NameAndNumber = std::pair<std::string, uint64_t>;

// A node that ran twice has the time of its last run.
std::map<NameAndNumber, double> times_in(std::istream& trace) {
  std::map<NameAndNumber, double> times;
  for (std::string line; std::getline(trace, line);) {
    if (line.size() > kLongestLine) continue;
    const auto name = behind(line, "\"name\":\"", "\"");
    const auto sequence = whole_number(behind(line, "\"args\":{\"seq\":", ",}"));
    const auto microseconds = number(behind(line, "\"dur\":", ",}"));
    if (name && sequence && microseconds && *microseconds >= 0) {
      times[{std::string(*name), *sequence}] = *microseconds * 1e-6;
    }
  }
  return times;
}

}  // namespace

size_t add_times(Graph& graph, const std::string& trace_file) {
  std::ifstream file(trace_file);
  TORCH_CHECK(file.is_open(), "The trace ", trace_file, " cannot be read.");
  const auto times = times_in(file);
  size_t found = 0;
  for (GraphNode& node : graph.nodes) {
    const auto time = times.find({node.name, node.sequence_nr});
    if (time == times.end()) continue;
    node.seconds = time->second;
    ++found;
  }
  TORCH_CHECK(
      found > 0, "No node of the graph is in ", trace_file,
      ", by name and sequence number. The trace has to be one that Overdrive wrote while a backward ran "
      "through this very graph.");
  return found;
}

}  // namespace overdrive::inspect
