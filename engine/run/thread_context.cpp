#include "engine/run/thread_context.h"

#include <pthread.h>

#include <algorithm>

namespace overdrive::engine {
namespace {

// A plain pointer has no destructor that a tensor freed late in a thread's life could come after.
// The key's destructor frees the context; should a backward follow, it makes a new one, and the
// system calls the destructor again.
thread_local ThreadContext* context_of_thread = nullptr;

void free_context(void* context) {
  context_of_thread = nullptr;
  delete static_cast<ThreadContext*>(context);
}

pthread_key_t context_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    TORCH_CHECK(pthread_key_create(&made, free_context) == 0,
                "Overdrive could not make a thread-specific key.");
    return made;
  }();
  return key;
}

ThreadContext& make_context() {
  auto context = std::make_unique<ThreadContext>();
  context->spare_memory.reserve(RunMemoryLease::kMostSpare);
  pthread_setspecific(context_key(), context.get());
  context_of_thread = context.release();
  return *context_of_thread;
}

}  // namespace

void ThreadContext::abandon(const AnyRun& run) {
  std::vector<ReadyTask>& tasks = heap.tasks();
  for (ReadyTask& task : tasks) {
    if (task.run != &run) continue;
    task.run = nullptr;
    task.rank.depth = TaskRank::kDeadDepth;
  }
  // The destructor of a node may run a backward, which moves the tasks. So each pass begins anew after a node.
  // No list of the nodes: an error for want of memory must not need memory.
  const auto has_dead_node = [](const ReadyTask& task) { return task.run == nullptr && task.keep; };
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (has_dead_node(tasks[i])) base::NodePtr(std::move(tasks[i].keep));
  }
  for (auto at = tasks.begin();
       (at = std::find_if(tasks.begin(), tasks.end(), has_dead_node)) != tasks.end();) {
    base::NodePtr(std::move(at->keep));
  }
}

ThreadContext& thread_context() {
  ThreadContext* context = context_of_thread;
  return context != nullptr ? *context : make_context();
}

void RunMemory::clear() {
  constexpr size_t kKeptSlots = size_t{1} << 16;
  for (base::variable_list* list : {&lists.inputs, &lists.outputs}) {
    list->clear();
    if (list->capacity() > kKeptSlots) base::variable_list().swap(*list);
  }
  if (slots.capacity() > kKeptSlots) {
    std::vector<at::Tensor>().swap(slots);
  } else {
    slots.clear();
  }
  plan.clear();
}

}  // namespace overdrive::engine
