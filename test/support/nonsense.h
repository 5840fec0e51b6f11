// Calls that make no sense, each with the words that its error must have: where, what, and what to do.
#pragma once

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace overdrive::test {

struct Nonsense {
  const char* name;
  std::function<void()> call;
  std::vector<std::string> words;
};

inline void expect_refused(const std::vector<Nonsense>& table) {
  for (const Nonsense& row : table) {
    SCOPED_TRACE(row.name);
    std::string text = "(no error)";
    try {
      row.call();
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not an error of ours: " << error.what();
    }
    for (const std::string& word : row.words) {
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
    }
    EXPECT_EQ(text.find("report a bug to PyTorch"), std::string::npos) << text;
  }
}

}  // namespace overdrive::test
