// Fills the parts of a host's graph task that nodes and users can read: which nodes of a pruned call
// are needed, which nodes take part, what they wait for. On the run's thread, before it starts.
#pragma once

#include "engine/plan/plan.h"

namespace overdrive::engine {

// exec_info_: read by Node::task_should_compute_output(), so it is filled in every pruned call.
void fill_exec_info(base::GraphTask& task, const Plan& plan, const base::edge_list& outputs,
                    bool accumulate_grad);

// nodes_in_graph_ and dependencies_: about 35 ns a node each, so only where somebody can look.
void fill_task_tables(base::GraphTask& task, const Plan& plan);

// A gradient reached `node`: keeps dependencies_ true, for get_current_graph_task_execution_order(), which
// reads what is still outstanding. The host serves that on a single thread only.
void note_arrival(base::GraphTask& task, base::Node* node);

}  // namespace overdrive::engine
