#include "engine/options.h"

#include "engine/base/environment_value.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace overdrive::engine {
namespace {

// The words of a variable stand in the order of the option's values.
template <typename T>
void read(const char* name, T& option) {
  if (const auto value = base::value_from_environment(name)) option = static_cast<T>(*value);
}

// Captured steps write there, later.
void check_can_be_written(const char* variable) {
  const char* path = std::getenv(variable);
  if (!path || !*path) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  TORCH_CHECK(file >= 0, variable, " is \"", path, "\"; it must be a file that can be written.");
  close(file);
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
  bool on = true;  // read by the preload library and the Python package; a bad value is an error here too
  read("OVERDRIVE", on);
  read("OVERDRIVE_CAPTURE", on);  // read by captured steps
  read("OVERDRIVE_THREADS", options.threads);
  read("OVERDRIVE_EXACT", options.exact);
  read("OVERDRIVE_OWN_NODES", options.own_nodes);
  read("OVERDRIVE_NATIVE_NODES", options.own_nodes);  // after its older name
  read("OVERDRIVE_CHECK", options.check_every);
  int every = 0;  // read by captured steps; a bad value is an error here already
  read("OVERDRIVE_CAPTURE_CHECK", every);
  bool always = false;
  read("OVERDRIVE_CAPTURE_ALWAYS", always);  // and this one
  int lanes = 1;
  read("OVERDRIVE_CAPTURE_LANES", lanes);  // so is this one
  bool passes = true;
  read("OVERDRIVE_CAPTURE_PASSES", passes);  // and this one
  check_can_be_written("OVERDRIVE_RECORDINGS");
  read("OVERDRIVE_KEEP_MEMORY", options.keep_memory_mib);
  read("OVERDRIVE_ERRORS", options.errors);
  read("OVERDRIVE_NAN", options.nan);
  read("OVERDRIVE_VERBOSE", options.verbose);
  return options;
}

const std::vector<Variable>& environment_variables() {
  static const auto* rows = [] {
    auto* made = new std::vector<Variable>;
    for (const base::EnvironmentVariable& row : base::kEnvironment)
      made->push_back({row.name, row.allowed, row.meaning});
    return made;
  }();
  return *rows;
}

}  // namespace overdrive::engine
