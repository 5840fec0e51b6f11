#include "engine/stats.h"

#include "engine/base/counters.h"
#include "engine/base/json_text.h"
#include "engine/heap_keeper.h"
#include "engine/native_nodes/native_call.h"
#include "engine/native_nodes/native_nodes.h"

#include <cstdio>
#include <utility>

namespace overdrive::engine {
namespace {

// In the order of stats_json(). Counters of these names fill the fields.
constexpr std::pair<const char*, uint64_t Stats::*> kNumbers[] = {
    {"backwards", &Stats::backwards},
    {"nodes", &Stats::nodes},
    {"frames_elided", &Stats::frames_elided},
    {"nested", &Stats::nested},
    {"slow_validations", &Stats::slow_validations},
    {"slow_sums", &Stats::slow_sums},
    {"fresh_stacks", &Stats::fresh_stacks},
    {"threads", &Stats::threads},
    {"checked", &Stats::checked},
    {"check_skipped", &Stats::check_skipped},
    {"packed_later", &Stats::packed_later},
    {"ahead_hits", &Stats::ahead_hits},
    {"ahead_waits", &Stats::ahead_waits},
    {"ahead_misses", &Stats::ahead_misses},
    {"ahead_unused", &Stats::ahead_unused},
    {"ahead_bytes", &Stats::ahead_bytes},
    {"waiting_bytes", &Stats::waiting_bytes},
    {"keep_memory_bytes", &Stats::keep_memory_bytes},
    {"compiled_autograd_unknown", &Stats::compiled_autograd_unknown},
};

// 1234567 -> "1,234,567"
std::string grouped(uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// Where a node has not been seen yet there is nothing to say of its type.
void add_native_nodes(const base::CounterTotals& totals, Stats& stats) {
  for (size_t type = 1; type < native_nodes::count_types(); ++type) {
    for (size_t outcome = 0; outcome < kNativeWays; ++outcome) {
      const uint64_t n = totals.native_count(type, outcome);
      if (n == 0) continue;
      if (outcome == place_of(NativeOutcome::kRan)) {
        stats.own_nodes[native_nodes::type_name(type)] = n;
      } else {
        stats.declined_nodes[native_nodes::type_name(type) + ": " + std::string(kNativeOutcomeNames[outcome])] =
            n;
      }
    }
  }
}

void add_map(std::string& json, const char* name, const std::map<std::string, uint64_t>& counts) {
  json += base::json_quoted(name) + ": {";
  const char* separator = "";
  for (const auto& [key, n] : counts) {
    json += separator + base::json_quoted(key) + ": " + std::to_string(n);
    separator = ", ";
  }
  json += '}';
}

}  // namespace

Stats stats() {
  base::CounterTotals totals = base::counter_totals();
  Stats stats;
  for (const auto& [name, number] : kNumbers) stats.*number = totals[name];
  stats.keep_memory_bytes = HeapKeeper::get().limit();
  add_native_nodes(totals, stats);
  stats.forwarded = std::move(totals.forwarded);
  return stats;
}

std::vector<std::string> own_node_types() {
  std::vector<std::string> types;
  for (size_t type = 1; type < native_nodes::count_types(); ++type)
    types.push_back(native_nodes::type_name(type));
  return types;
}

void reset_stats() { base::reset_counters(); }

std::string stats_summary() {
  const Stats s = stats();
  uint64_t on_stock = 0;
  std::string reasons;
  for (const auto& [reason, calls] : s.forwarded) {
    on_stock += calls;
    reasons += (reasons.empty() ? " (" : ", ") + reason;
  }
  if (!reasons.empty()) reasons += ")";
  uint64_t own_nodes = 0;
  for (const auto& [type, nodes] : s.own_nodes) own_nodes += nodes;
  return grouped(s.backwards) + (s.backwards == 1 ? " backward" : " backwards") + " on Overdrive, " +
         grouped(on_stock) + " on stock" + reasons + "; " + grouped(s.nodes) + " nodes, " + grouped(own_nodes) +
         " of them run by Overdrive itself";
}

// One line, so that it can be the line that the preload library prints at exit.
std::string stats_json() {
  const Stats s = stats();
  std::string json = "{";
  for (const auto& [name, number] : kNumbers)
    json += base::json_quoted(name) + ": " + std::to_string(s.*number) + ", ";
  add_map(json, "own_nodes", s.own_nodes);
  json += ", ";
  add_map(json, "declined_nodes", s.declined_nodes);
  json += ", ";
  add_map(json, "forwarded", s.forwarded);
  return json + "}";
}

}  // namespace overdrive::engine
