#include "engine/options.h"

#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

namespace overdrive::engine {
namespace {

template <typename T>
struct Word {
  const char* text;
  T value;
};

constexpr int kMostMebibytes = 2047;  // below kMostKeptMemory of keep_memory.h
constexpr Word<bool> kOffOn[] = {{"0", false}, {"1", true}};
// The preload library prints, and tells 1 from 2.
constexpr Word<bool> kVerbose[] = {{"0", false}, {"1", true}, {"2", true}};
constexpr Word<Threads> kThreads[] = {
    {"auto", Threads::kAuto}, {"caller", Threads::kCaller}, {"device", Threads::kDevice}};
constexpr Word<Exact> kExact[] = {{"auto", Exact::kAuto}, {"always", Exact::kAlways}};

constexpr Word<Errors> kErrors[] = {
    {"plain", Errors::kPlain}, {"note", Errors::kNote}, {"full", Errors::kFull}};
constexpr Word<Nan> kNan[] = {{"off", Nan::kOff}, {"first", Nan::kFirst}};

template <typename T, size_t n>
std::string list_of(const Word<T> (&words)[n]) {
  std::string list;
  for (const auto& word : words) {
    if (!list.empty()) list += '|';
    list += word.text;
  }
  return list;
}

// A variable that is set to nothing counts as not set: `NAME= program` is how shells unset one.
const char* value_of(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

template <typename T, size_t n>
void read(const char* name, const Word<T> (&words)[n], T& option) {
  const char* value = value_of(name);
  if (!value) return;
  for (const auto& word : words) {
    if (std::string_view(value) == word.text) {
      option = word.value;
      return;
    }
  }
  TORCH_CHECK(false, name, " is \"", value, "\", but must be one of ", list_of(words), ".");
}

void read(const char* name, int& option, int most = std::numeric_limits<int>::max()) {
  const char* value = value_of(name);
  if (!value) return;
  int number = -1;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, number);
  TORCH_CHECK(error == std::errc{} && stop == end && number >= 0 && number <= most, name, " is \"", value,
              "\", but must be a whole number from 0 to ", most, ".");
  option = number;
}

// How many letters must be changed, added or left out to make one word of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// "" for a name that nobody would mistake for one of ours.
std::string complaint_about(const std::string& name) {
  constexpr std::string_view kPrefix = "OVERDRIVE_";
  constexpr std::string_view kOfTests = "OVERDRIVE_TEST_";
  if (!name.starts_with(kPrefix) || name.starts_with(kOfTests)) return "";
  const Variable* nearest = nullptr;
  for (const Variable& known : environment_variables()) {
    if (name == known.name) return "";
    if (nearest == nullptr || distance(name, known.name) < distance(name, nearest->name)) nearest = &known;
  }
  return c10::str(name, " is set, but Overdrive has no such variable. Did you mean ", nearest->name, "?");
}

}  // namespace

std::vector<std::string> unknown_environment_variables() {
  std::vector<std::string> complaints;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string complaint = complaint_about(std::string(*entry, std::strcspn(*entry, "=")));
    if (!complaint.empty()) complaints.push_back(std::move(complaint));
  }
  return complaints;
}

Options Options::from_environment() {
  Options options;
  read("OVERDRIVE_THREADS", kThreads, options.threads);
  read("OVERDRIVE_EXACT", kExact, options.exact);
  read("OVERDRIVE_OWN_NODES", kOffOn, options.own_nodes);
  read("OVERDRIVE_CHECK", options.check_every);
  int every = 0;  // read by captured steps; a bad value is an error here already
  read("OVERDRIVE_CAPTURE_CHECK", every);
  read("OVERDRIVE_KEEP_MEMORY", options.keep_memory_mib, kMostMebibytes);
  read("OVERDRIVE_ERRORS", kErrors, options.errors);
  read("OVERDRIVE_NAN", kNan, options.nan);
  read("OVERDRIVE_VERBOSE", kVerbose, options.verbose);
  return options;
}

const std::vector<Variable>& environment_variables() {
  static const auto* rows = new std::vector<Variable>{
      {"OVERDRIVE", "0|1", "whether the preload library and the Python package install the engine (1)"},
      {"OVERDRIVE_THREADS", "auto|caller|device", "which threads run a backward's nodes (auto)"},
      {"OVERDRIVE_EXACT", "auto|always",
       "whether a backward has all of stock's surroundings: where something could notice, or always (auto)"},
      {"OVERDRIVE_OWN_NODES", "0|1", "whether the engine itself runs the nodes that it has a function for (1)"},
      {"OVERDRIVE_CHECK", "n", "run every n-th backward on the stock engine too and compare; 0 for never (0)"},
      {"OVERDRIVE_CAPTURE_CHECK", "n",
       "run every n-th replay of a captured step eagerly too and compare; 0 for never (0)"},
      {"OVERDRIVE_KEEP_MEMORY", "MiB|0",
       "how much free memory glibc keeps for the next step; 0 leaves glibc as it is (up to 256 where steps "
       "fault)"},
      {"OVERDRIVE_TRACE", "FILE",
       "a trace of every backward for chrome://tracing and ui.perfetto.dev goes there; %p becomes the number "
       "of the process (none)"},
      {"OVERDRIVE_ERRORS", "plain|note|full",
       "whether what() of an error out of a backward names the node and the way to it; full: and the forward's "
       "stack, and the operator that changed a tensor in place (plain)"},
      {"OVERDRIVE_NAN", "off|first",
       "whether backwards look for the first node that makes a NaN or an infinity, and warn of it (off)"},
      {"OVERDRIVE_VERBOSE", "0|1|2",
       "whether the preload library prints a line at load and one at exit; 2: and all counters (0)"},
  };
  return *rows;
}

}  // namespace overdrive::engine
