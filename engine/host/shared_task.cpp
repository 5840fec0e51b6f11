#include "engine/host/shared_task.h"

#include <atomic>
#include <mutex>

namespace overdrive::engine {
namespace {

// The host numbers its tasks from 0 and shows the number as an int. Borrowed tasks have numbers of the upper
// half.
uint64_t next_id() {
  static std::atomic<uint64_t> next{0};
  constexpr uint64_t kHalf = uint64_t{1} << 30;
  return kHalf + next.fetch_add(1, std::memory_order_relaxed) % kHalf;
}

}  // namespace

SharedTask::SharedTask(base::GraphTask& task, bool keep_graph, const base::edge_list& roots)
    : task_(task.shared_from_this()), id_(next_id()), keep_graph_(keep_graph) {
  for (const base::Edge& edge : roots) graph_roots_.push_back(edge.function.get());
  swap();
}

void SharedTask::run_callbacks() {
  std::unique_lock<std::mutex> lock(task_->final_callbacks_lock_);
  // By index: a callback may queue more.
  for (size_t i = 0; i < task_->final_callbacks_.size(); ++i) {
    // The callback lives until the task ends, as in stock. In a list it does not move when the list grows.
    const auto& callback = callbacks_run_.emplace_back(std::move(task_->final_callbacks_[i]));
    lock.unlock();
    callback();
    lock.lock();
  }
}

void SharedTask::swap() {
  std::swap(task_->exec_info_, exec_info_);
  std::swap(task_->nodes_in_graph_, nodes_in_graph_);
  std::swap(task_->dependencies_, dependencies_);
  std::swap(task_->graph_roots_, graph_roots_);
  std::swap(task_->captured_vars_, captured_vars_);
  std::swap(task_->final_callbacks_, final_callbacks_);
  std::swap(task_->id_, id_);
  std::swap(task_->keep_graph_, keep_graph_);
}

}  // namespace overdrive::engine
