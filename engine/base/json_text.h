// Text for JSON documents. Pure functions, any thread, without LibTorch.
#pragma once

#include <string>
#include <string_view>

namespace overdrive::base {

// As it stands inside the quotes of a JSON string: in UTF-8, with `?` in the place of each byte that is no
// UTF-8.
std::string json_text(std::string_view text);

// The same, in quotes.
std::string json_quoted(std::string_view text);

// JSON has no NaN and no infinity: `null`.
std::string json_number(double value);

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

}  // namespace overdrive::base
