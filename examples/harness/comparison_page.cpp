#include "examples/harness/comparison_page.h"

#include <nlohmann/json.hpp>

namespace overdrive::harness {

namespace {

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

std::string page_of(const nlohmann::json& document) {
  std::string data = document.dump();
  // "</script>" inside a name would end the block; in JSON the slash may be written so.
  replace_all(data, "</", "<\\/");
  std::string page = kPage;
  const std::pair<const char*, std::string> parts[] = {
      {"/*STYLE*/", kPageStyle}, {"/*SCRIPT*/", kPageScript}, {"/*DATA*/", std::move(data)}};
  for (const auto& [mark, content] : parts) page.replace(page.find(mark), std::string(mark).size(), content);
  return page;
}

}  // namespace overdrive::harness
