#include "test/parity/fuzz/last_words.h"

#include <cstdio>

#include <unistd.h>

namespace overdrive::fuzz {
namespace {

// Shrinking a difference takes a while; a program itself takes milliseconds.
constexpr unsigned kSeconds = 300;
char last_words[96];
int last_words_size = 0;

void speak(int signal) {
  if (::write(STDERR_FILENO, last_words, static_cast<size_t>(last_words_size)) < 0) ::_exit(3);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

LastWords::LastWords(uint64_t seed) {
  last_words_size =
      std::snprintf(last_words, sizeof last_words, "The process ends in the fuzz program of seed %llu.\n",
                    static_cast<unsigned long long>(seed));
  struct sigaction action = {};
  action.sa_handler = &speak;
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  ::alarm(kSeconds);
}

LastWords::~LastWords() {
  ::alarm(0);
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace overdrive::fuzz
