// Lends the graph task of a frame to a nested backward: until the destructor, the task's public fields are
// those of the nested backward. Costs a tenth of a second frame. On the stack of the nested backward; its
// thread alone uses the object. Only for a serial outer run with no other thread inside the task.
#pragma once

#include "engine/base/torch_types.h"

#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace overdrive::engine {

class SharedTask {
 public:
  SharedTask(base::GraphTask& task, bool keep_graph, const base::edge_list& roots);
  ~SharedTask() { swap(); }
  SharedTask(const SharedTask&) = delete;
  SharedTask& operator=(const SharedTask&) = delete;

  // Runs the final callbacks of the nested backward, and the callbacks that these queue.
  void run_callbacks();

 private:
  void swap();

  // Owned, because a program that switches fibers may end the frame first.
  const std::shared_ptr<base::GraphTask> task_;
  std::unordered_map<base::Node*, base::GraphTask::ExecInfo> exec_info_;
  std::unordered_set<base::Node*> nodes_in_graph_;
  std::unordered_map<base::Node*, int> dependencies_;
  c10::SmallVector<base::Node*, 4> graph_roots_;
  std::vector<at::Tensor> captured_vars_;
  std::vector<std::function<void()>> final_callbacks_;
  std::list<std::function<void()>> callbacks_run_;  // destroyed before callbacks that an error left
  uint64_t id_;
  bool keep_graph_;
};

}  // namespace overdrive::engine
