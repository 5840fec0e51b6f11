// The error a call ends with: its own type and the message without the backtrace that
// what() carries. Comparable, so that two engines can be held against each other.
#pragma once

#include <functional>
#include <ostream>
#include <string>

namespace overdrive::test {

struct Caught {
  std::string type;     // "c10::Error", "std::bad_alloc", "int"; "" when nothing was thrown
  std::string message;  // c10::Error::msg(), else what(), else ""

  bool operator==(const Caught&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Caught& caught) {
    return out << "{" << caught.type << ": " << caught.message << "}";
  }
};

Caught message_of(const std::function<void()>& call);

}  // namespace overdrive::test
