// Figures and cells of the tables that inspect/ prints, which fit a terminal of 60 columns. Pure functions.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace overdrive::inspect {

template <typename... Args>
std::string printed(const char* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

inline std::string time_text(double seconds) {
  if (seconds < 1e-3) return printed("%.1fus", seconds * 1e6);
  if (seconds < 1) return printed("%.1fms", seconds * 1e3);
  return printed("%.1fs", seconds);
}

inline std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return printed("%lldB", static_cast<long long>(bytes));
  auto value = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return printed(value < 100 ? "%.1f%s" : "%.0f%s", value, unit);
}

// LibTorch's namespace says nothing in a table of LibTorch's nodes.
inline std::string short_name(const std::string& name) {
  constexpr std::string_view kNamespace = "torch::autograd::";
  return name.starts_with(kNamespace) ? name.substr(kNamespace.size()) : name;
}

inline std::string percent(double part, double whole) {
  return printed("%.0f%%", whole > 0 ? 100 * part / whole : 0);
}

inline std::string right(const std::string& text, size_t width) {
  return text.size() >= width ? " " + text : std::string(width - text.size(), ' ') + text;
}
// The end of a name that is too long says more than its middle: the middle gives way.
inline std::string left(const std::string& text, size_t width) {
  if (text.size() < width) return text + std::string(width - text.size(), ' ');
  const size_t end = (width - 3) / 2;
  return text.substr(0, width - 3 - end) + ".." + text.substr(text.size() - end) + " ";
}

}  // namespace overdrive::inspect
