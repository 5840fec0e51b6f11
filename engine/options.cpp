#include "engine/options.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

namespace overdrive::engine {
namespace {

template <typename T>
struct Word {
  const char* text;
  T value;
};

constexpr Word<bool> kOffOn[] = {{"0", false}, {"1", true}};
constexpr Word<Threads> kThreads[] = {
    {"auto", Threads::kAuto}, {"caller", Threads::kCaller}, {"device", Threads::kDevice}};
constexpr Word<GraphViews> kGraphViews[] = {
    {"auto", GraphViews::kAuto}, {"on", GraphViews::kOn}, {"off", GraphViews::kOff}};
constexpr Word<Deep> kDeep[] = {{"stacks", Deep::kStacks}, {"threads", Deep::kThreads}};
constexpr Word<Frame> kFrame[] = {{"auto", Frame::kAuto}, {"always", Frame::kAlways}};

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

void read(const char* name, int& option) {
  const char* value = value_of(name);
  if (!value) return;
  int number = -1;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, number);
  TORCH_CHECK(error == std::errc{} && stop == end && number >= 0, name, " is \"", value,
              "\", but must be a whole number from 0 to ", std::numeric_limits<int>::max(), ".");
  option = number;
}

}  // namespace

Options Options::from_environment() {
  Options options;
  read("OVERDRIVE_THREADS", kThreads, options.threads);
  read("OVERDRIVE_GRAPH_VIEWS", kGraphViews, options.graph_views);
  read("OVERDRIVE_DEEP", kDeep, options.deep);
  read("OVERDRIVE_FRAME", kFrame, options.frame);
  read("OVERDRIVE_CURRENT_NODE", kOffOn, options.exact_current_node);
  read("OVERDRIVE_OWN_NODES", kOffOn, options.own_nodes);
  read("OVERDRIVE_CHECK", options.check_every);
  read("OVERDRIVE_VERBOSE", kOffOn, options.verbose);
  return options;
}

const std::vector<Variable>& environment_variables() {
  static const auto* rows = new std::vector<Variable>{
      {"OVERDRIVE", "0|1", "whether the preload library installs the engine (1)"},
      {"OVERDRIVE_THREADS", "auto|caller|device", "which threads run a backward's nodes (auto)"},
      {"OVERDRIVE_GRAPH_VIEWS", "auto|on|off",
       "whether the host's views of the running graph are served (auto)"},
      {"OVERDRIVE_DEEP", "stacks|threads", "where a nested backward goes when the stack runs low (stacks)"},
      {"OVERDRIVE_FRAME", "auto|always", "whether every backward runs inside a stock graph task (auto)"},
      {"OVERDRIVE_CURRENT_NODE", "0|1", "whether get_current_node() is exact inside a node (1)"},
      {"OVERDRIVE_OWN_NODES", "0|1", "whether the engine itself runs the nodes that it has a function for (1)"},
      {"OVERDRIVE_CHECK", "n", "run every n-th backward on the stock engine too and compare; 0 for never (0)"},
      {"OVERDRIVE_VERBOSE", "0|1", "whether the preload library prints a line at load and one at exit (0)"},
  };
  return *rows;
}

}  // namespace overdrive::engine
