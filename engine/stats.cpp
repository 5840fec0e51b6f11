#include "engine/stats.h"

#include "engine/base/counters.h"
#include "engine/heap_keeper.h"
#include "engine/own_nodes/own_call.h"
#include "engine/own_nodes/own_nodes.h"

#include <cstdio>

namespace overdrive::engine {
namespace {

// Reasons are literals of ours, but JSON that a stray quote can break is not JSON.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

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
void add_own_nodes(const CounterTotals& totals, Stats& stats) {
  for (size_t type = 1; type < own::count_types(); ++type) {
    for (size_t outcome = 0; outcome < kOwnWays; ++outcome) {
      const uint64_t n = totals.own_count(type, outcome);
      if (n == 0) continue;
      if (outcome == static_cast<size_t>(OwnOutcome::kRan)) {
        stats.own_nodes[own::type_name(type)] = n;
      } else {
        stats.declined_nodes[own::type_name(type) + ": " + std::string(kOwnOutcomeNames[outcome])] = n;
      }
    }
  }
}

void add_map(std::string& json, const char* name, const std::map<std::string, uint64_t>& counts) {
  json += quoted(name) + ": {";
  const char* separator = "";
  for (const auto& [key, n] : counts) {
    json += separator + quoted(key) + ": " + std::to_string(n);
    separator = ", ";
  }
  json += '}';
}

}  // namespace

Stats stats() {
  CounterTotals totals = counter_totals();
  Stats stats{.backwards = totals[Count::kBackwards],
              .nodes = totals[Count::kNodes],
              .frames_elided = totals[Count::kFramesElided],
              .nested = totals[Count::kNested],
              .slow_validations = totals[Count::kSlowValidations],
              .slow_sums = totals[Count::kSlowSums],
              .fresh_stacks = totals[Count::kFreshStacks],
              .threads = totals[Count::kThreads],
              .checked = totals[Count::kChecked],
              .check_skipped = totals[Count::kCheckSkipped],
              .decision_hits = totals[Count::kDecisionHits],
              .decision_misses = totals[Count::kDecisionMisses],
              .packed_later = totals[Count::kPackedLater],
              .ahead_hits = totals[Count::kAheadHits],
              .ahead_waits = totals[Count::kAheadWaits],
              .ahead_misses = totals[Count::kAheadMisses],
              .ahead_unused = totals[Count::kAheadUnused],
              .ahead_bytes = totals[Count::kAheadBytes],
              .waiting_bytes = static_cast<uint64_t>(waiting_bytes()),
              .keep_memory_bytes = HeapKeeper::get().limit(),
              .own_nodes = {},
              .declined_nodes = {},
              .forwarded = std::move(totals.forwarded)};
  add_own_nodes(totals, stats);
  return stats;
}

std::vector<std::string> own_node_types() {
  std::vector<std::string> types;
  for (size_t type = 1; type < own::count_types(); ++type) types.push_back(own::type_name(type));
  return types;
}

void reset_stats() { reset_counters(); }

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
  return grouped(s.backwards) + " backwards on Overdrive, " + grouped(on_stock) + " on stock" + reasons + "; " +
         grouped(s.nodes) + " nodes, " + grouped(own_nodes) + " of them run by Overdrive itself";
}

// One line, so that it can be the line that the preload library prints at exit.
std::string stats_json() {
  const Stats s = stats();
  std::string json = "{";
  const auto add = [&json](const char* name, uint64_t value) {
    json += quoted(name) + ": " + std::to_string(value) + ", ";
  };
  add("backwards", s.backwards);
  add("nodes", s.nodes);
  add("frames_elided", s.frames_elided);
  add("nested", s.nested);
  add("slow_validations", s.slow_validations);
  add("slow_sums", s.slow_sums);
  add("fresh_stacks", s.fresh_stacks);
  add("threads", s.threads);
  add("checked", s.checked);
  add("check_skipped", s.check_skipped);
  add("decision_hits", s.decision_hits);
  add("decision_misses", s.decision_misses);
  add("packed_later", s.packed_later);
  add("ahead_hits", s.ahead_hits);
  add("ahead_waits", s.ahead_waits);
  add("ahead_misses", s.ahead_misses);
  add("ahead_unused", s.ahead_unused);
  add("ahead_bytes", s.ahead_bytes);
  add("waiting_bytes", s.waiting_bytes);
  add("keep_memory_bytes", s.keep_memory_bytes);
  add_map(json, "own_nodes", s.own_nodes);
  json += ", ";
  add_map(json, "declined_nodes", s.declined_nodes);
  json += ", ";
  add_map(json, "forwarded", s.forwarded);
  return json + "}";
}

}  // namespace overdrive::engine
