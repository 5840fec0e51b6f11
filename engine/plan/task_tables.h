// Fills the parts of a host's graph task that nodes and users can read: the needed nodes of a pruned call, the
// nodes of the graph, and their dependencies. No state. Used by the run's thread, before the run starts.
#pragma once

#include "engine/plan/plan.h"

namespace overdrive::engine {

// exec_info_: read by Node::task_should_compute_output(), so it is filled in every pruned call.
void fill_exec_info(base::GraphTask& task, const Plan& plan, const base::edge_list& outputs,
                    bool accumulate_grad);

// nodes_in_graph_ and dependencies_: about 35 ns a node each, so only for readers (Note [View readers]).
void fill_task_tables(base::GraphTask& task, const Plan& plan);

// A gradient reached `node`. Keeps dependencies_ true for get_current_graph_task_execution_order(), which reads
// outstanding dependencies. The host serves that function on a single thread only.
void note_arrival(base::GraphTask& task, base::Node* node);

}  // namespace overdrive::engine
