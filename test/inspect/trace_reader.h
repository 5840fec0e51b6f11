// A trace file, read by a strict JSON parser and held against the rules of the format: ids, nesting, arrows.
// Used by the test that wrote the file.
#pragma once

#include "test/support/pch.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace overdrive::test {

// A file that is gone at the end of the test.
class TraceOnDisk {
 public:
  explicit TraceOnDisk(const std::string& name)
      : path(testing::TempDir() + "overdrive_" + std::to_string(getpid()) + "_" + name + ".json") {}
  ~TraceOnDisk() { std::remove(path.c_str()); }

  // Throws where the file is no JSON.
  nlohmann::json whole() const {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
  }
  int64_t bytes() const {
    std::ifstream in(path, std::ios::ate);
    return static_cast<int64_t>(in.tellg());
  }
  // The slices of a category, or of all, by begin.
  std::vector<nlohmann::json> slices(const std::set<std::string>& categories = {}) const {
    std::vector<nlohmann::json> found;
    const nlohmann::json trace = whole();  // outlives the loop
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      if (categories.empty() || categories.contains(event["cat"])) found.push_back(event);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a["ts"].template get<double>() < b["ts"]; });
    return found;
  }
  std::vector<nlohmann::json> nodes() const { return slices({"own", "host"}); }
  std::vector<std::string> node_names() const {
    std::vector<std::string> names;
    for (const auto& node : nodes()) names.push_back(node["name"]);
    return names;
  }

  const std::string path;
};

// What Perfetto asks of slices and arrows; "" when all holds.
inline std::string broken_rule(const TraceOnDisk& trace) {
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> ends;  // of the open slices of a thread
  std::set<std::string> begun;
  for (const auto& slice : trace.slices()) {
    if (slice.value("flow_out", false)) begun.insert(slice["bind_id"]);
  }
  for (const auto& slice : trace.slices()) {
    const double begin = slice["ts"], end = begin + slice["dur"].get<double>();
    if (slice["dur"].get<double>() < 0) return "negative: " + slice.dump();
    auto& open = ends[{slice["pid"], slice["tid"]}];
    constexpr double kRounding = 0.0015;  // microseconds: begin and length are rounded each
    while (!open.empty() && open.back() <= begin + kRounding) open.pop_back();
    if (!open.empty() && end > open.back() + kRounding) return "leaves the slice around it: " + slice.dump();
    open.push_back(end);
    if (slice.value("flow_in", false) && !begun.contains(slice["bind_id"]))
      return "an arrow from nowhere: " + slice.dump();
  }
  return "";
}

}  // namespace overdrive::test
