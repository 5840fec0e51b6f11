// A graph that can be run backward many times, and what is needed to run it: by an engine,
// or by hand. Owned by the measurement; one thread at a time. Does not measure anything.
#pragma once

#include "engine/base/torch_types.h"

#include <functional>
#include <string>
#include <vector>

namespace overdrive::bench {

using base::Edge;
using base::edge_list;
using base::Node;
using base::NodePtr;
using base::variable_list;

struct Graph {
  edge_list roots;
  variable_list root_gradients;
  // Whose .grad is dropped before every run.
  variable_list leaves;
  // Saved tensors survive the run. When false, prepare() must build the graph anew.
  bool keep_graph = true;
  // Runs after a change of the engine that are not counted: they start what later ones use, threads for
  // example, and meet the caches that the other engine has filled.
  int runs_to_warm_up = 1;
  // Neither engine's threads end while the other one runs. Otherwise ours do whenever stock's turn comes, and
  // what is measured is threads that have just been started.
  bool threads_live_on = false;
  // How many nodes a run visits when the edges do not tell (0: they do).
  int64_t nodes_visited = 0;
  // Work to be done before every run and not to be measured; may be empty.
  std::function<void(Graph&)> build_again;
  // Tells nodes that start a backward of their own whether to do it by hand.
  std::function<void(bool by_hand)> set_by_hand;

  int64_t nodes() const;
  void prepare();
  // The backward as Tensor::backward() would do it: on the default engine of the moment, or on `engine`.
  void run() const;
  base::Engine* engine = nullptr;
};

// What `bench engine` knows how to build.
struct GraphKind {
  std::string name;
  std::string what;
  std::function<Graph(int64_t size)> build;
  std::vector<int64_t> sizes;
  std::vector<int64_t> quick_sizes;
};

const std::vector<GraphKind>& graph_kinds();

// Nodes that a backward from `roots` would visit.
int64_t count_nodes(const edge_list& roots);

}  // namespace overdrive::bench
