#include "engine/plan/task_tables.h"

namespace overdrive::engine {

using torch::autograd::GraphTask;

void fill_exec_info(GraphTask& task, const Plan& plan, const base::edge_list& outputs, bool accumulate_grad) {
  task.exec_info_[plan.nodes[0].node];  // stock always has an entry for the root
  for (const PlannedNode& planned : plan.nodes) {
    if (planned.needed) task.exec_info_[planned.node].needed_ = true;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    GraphTask::ExecInfo& info = task.exec_info_[outputs[i].function.get()];
    if (accumulate_grad) {
      info.needed_ = true;
      continue;
    }
    if (!info.captures_) info.captures_ = std::make_unique<std::vector<GraphTask::ExecInfo::Capture>>();
    info.captures_->emplace_back(static_cast<int>(outputs[i].input_nr), static_cast<int>(i));
  }
}

void fill_task_tables(GraphTask& task, const Plan& plan) {
  task.nodes_in_graph_.reserve(plan.nodes.size());
  task.dependencies_.reserve(plan.nodes.size());
  for (const PlannedNode& planned : plan.nodes) {
    if (planned.waiting == 0) continue;  // the root, unless an edge leads back to it
    task.nodes_in_graph_.insert(planned.node);
    task.dependencies_[planned.node] = static_cast<int>(planned.waiting);
  }
}

void note_arrival(GraphTask& task, base::Node* node) {
  const auto at = task.dependencies_.find(node);
  if (at != task.dependencies_.end() && --at->second == 0) task.dependencies_.erase(at);
}

}  // namespace overdrive::engine
