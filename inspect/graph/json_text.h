// Text for JSON documents. Pure functions, without LibTorch.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

namespace overdrive::inspect {

// In quotes. Bytes above 127 stay, because JSON is UTF-8.
inline std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

// JSON has no NaN and no infinity.
inline std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The texts that `write` makes of the elements, in brackets.
template <typename List, typename Write>
std::string json_list(const List& list, Write&& write, const char* separator = ", ") {
  std::string json = "[";
  for (const auto& element : list) {
    if (json.size() > 1) json += separator;
    json += write(element);
  }
  return json += "]";
}

}  // namespace overdrive::inspect
