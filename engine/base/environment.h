// The OVERDRIVE_* variables, and which values each may have. Plain C inside, because the preload library reads
// it too and has no C++ library. Reads nothing but the value it is given; engine/options.h reads the
// environment.
#pragma once

#include <limits.h>
#include <stdio.h>
#include <string.h>

namespace overdrive::base {

struct EnvironmentVariable {
  const char* name;
  const char* allowed;  // words with | between them, or "n", "MiB|0", "FILE"
  const char* meaning;
};

inline constexpr EnvironmentVariable kEnvironment[] = {
    {"OVERDRIVE", "0|1",
     "whether the preload library and the Python package install the engine, and captured steps replay (1)"},
    {"OVERDRIVE_THREADS", "auto|caller|device", "which threads run a backward's nodes (auto)"},
    {"OVERDRIVE_EXACT", "auto|always",
     "whether a backward has all of stock's surroundings: where something could notice, or always (auto)"},
    {"OVERDRIVE_NATIVE_NODES", "0|1",
     "whether the engine itself runs the nodes that it has a function for (1)"},
    {"OVERDRIVE_OWN_NODES", "0|1", "the older name of OVERDRIVE_NATIVE_NODES, which counts where both are set"},
    {"OVERDRIVE_CHECK", "n", "run every n-th backward on the stock engine too and compare; 0 for never (0)"},
    {"OVERDRIVE_CAPTURE", "0|1", "whether captured steps record and replay; 0: every call is eager (1)"},
    {"OVERDRIVE_CAPTURE_CHECK", "n",
     "run every n-th replay of a captured step eagerly too and compare; 0 for never (the 10th, 100th, 1000th "
     "...)"},
    {"OVERDRIVE_CAPTURE_ALWAYS", "0|1",
     "whether captured steps replay where that is slower than an eager call, too (0)"},
    {"OVERDRIVE_CAPTURE_LANES", "n",
     "on how many threads a replay of a captured step runs at most; 0 for as many as help (1)"},
    {"OVERDRIVE_CAPTURE_PASSES", "0|1",
     "whether replays leave out operators whose results are there already or not needed (1)"},
    {"OVERDRIVE_RECORDINGS", "FILE",
     "a line for each recording of a captured step goes there, with a digest of its program (none)"},
    {"OVERDRIVE_KEEP_MEMORY", "MiB|0",
     "how much free memory glibc keeps for the next step; 0 leaves glibc as it is (up to 256 where steps "
     "fault)"},
    {"OVERDRIVE_TRACE", "FILE",
     "a trace of every backward for chrome://tracing and ui.perfetto.dev goes there; %p becomes the number of "
     "the process (none)"},
    {"OVERDRIVE_ERRORS", "plain|note|full",
     "whether what() of an error out of a backward names the node and the way to it; full: and the forward's "
     "stack, and the operator that changed a tensor in place (plain)"},
    {"OVERDRIVE_NAN", "off|first",
     "whether backwards look for the first node that makes a NaN or an infinity, and warn of it (off)"},
    {"OVERDRIVE_VERBOSE", "0|1|2",
     "whether the preload library prints a line at load and one at exit; 2: and all counters (0)"},
};

inline constexpr int kMostMebibytes = 2047;  // below kMostKeptMemory of keep_memory.h

// The most that a number may be, or -1 for a variable of words.
inline int most_of(const EnvironmentVariable& variable) {
  if (strcmp(variable.allowed, "n") == 0) return INT_MAX;
  return strcmp(variable.allowed, "MiB|0") == 0 ? kMostMebibytes : -1;
}

// The number that the value is, or its place among the words. -1: a bad value.
inline int number_of_value(const EnvironmentVariable& variable, const char* value) {
  const int most = most_of(variable);
  if (most >= 0) {
    long long number = *value == '\0' ? -1 : 0;
    for (; *value != '\0' && number >= 0; ++value) {
      number = *value < '0' || *value > '9' ? -1 : 10 * number + (*value - '0');
      if (number > most) number = -1;
    }
    return static_cast<int>(number);
  }
  if (strcmp(variable.allowed, "FILE") == 0) return 0;
  const size_t length = strlen(value);
  const char* word = variable.allowed;
  for (int place = 0;; ++place) {
    const size_t end = strcspn(word, "|");
    if (end == length && strncmp(word, value, end) == 0) return place;
    if (word[end] == '\0') return -1;
    word += end + 1;
  }
}

// NAME is "value", but must be ...
inline void describe_bad_value(const EnvironmentVariable& variable, const char* value, char* text,
                               size_t size) {
  const int most = most_of(variable);
  if (most < 0) {
    snprintf(text, size, "%s is \"%.200s\", but must be one of %s.", variable.name, value, variable.allowed);
  } else {
    snprintf(text, size, "%s is \"%.200s\", but must be a whole number from 0 to %d.", variable.name, value,
             most);
  }
}

}  // namespace overdrive::base
