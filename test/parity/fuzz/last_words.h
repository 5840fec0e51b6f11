// Names the program under way when the process crashes or hangs in it. One at a time; takes the
// signal handlers for its lifetime and gives them back.
#pragma once

#include <csignal>
#include <cstdint>
#include <iterator>

namespace overdrive::fuzz {

class LastWords {
 public:
  explicit LastWords(uint64_t seed);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGALRM};
  struct sigaction before_[std::size(kSignals)];
};

}  // namespace overdrive::fuzz
