// Question: what does each type of own node gain beside its own apply()? A chain of one operator, its backward
// on stock, on Overdrive without own nodes, and with them, in turns in one process. Runs on the calling thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

struct NodesBenchOptions {
  std::vector<std::string> types;  // empty: all of them
  int rounds = 31;
  bool quick = false;  // few rounds: for tests
};

// One object for each type and size: type, link (the operators of one link), elements, stock_ns, apply_ns,
// own_ns (a link's backward), of_stock, of_apply.
void run_nodes_bench(const NodesBenchOptions& options,
                     const std::function<void(const nlohmann::json&)>& on_row);

// The types that have a row.
std::vector<std::string> benched_node_types();

}  // namespace overdrive::bench
