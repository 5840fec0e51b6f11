// What happened, in order. Any thread may add; read it when the threads are joined.
#pragma once

#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace overdrive::test {

class Timeline {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    std::lock_guard lock(mutex_);
    events_.push_back(text.str());
  }

  std::vector<std::string> events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }

  // One line an event: for comparing two engines.
  std::string text() const {
    std::string all;
    for (const auto& event : events()) all += event + "\n";
    return all;
  }

  void clear() {
    std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

using Events = std::vector<std::string>;

}  // namespace overdrive::test
