#include "inspect/page/page.h"

#include <utility>

namespace overdrive::inspect {
namespace {

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// "</script>" or "<!--" inside a name would end the block of data; in JSON the sign may be written as a number.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string page_of(const std::string& title, const std::string& style, const std::string& script,
                    const std::string& json) {
  std::string page = kPageFrame;
  const std::pair<const char*, std::string> parts[] = {{"/*TITLE*/", html_text(title)},
                                                       {"/*STYLE*/", kPageStyle + style},
                                                       {"/*SCRIPT*/", script},
                                                       {"/*DATA*/", script_safe(json)}};
  size_t from = 0;  // a mark inside a part is text of the part
  for (const auto& [mark, content] : parts) {
    const size_t at = page.find(mark, from);
    page.replace(at, std::char_traits<char>::length(mark), content);
    from = at + content.size();
  }
  return page;
}

}  // namespace overdrive::inspect
