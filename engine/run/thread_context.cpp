#include "engine/run/thread_context.h"

#include <pthread.h>

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
  pthread_setspecific(context_key(), context.get());
  context_of_thread = context.release();
  return *context_of_thread;
}

}  // namespace

std::vector<base::NodePtr> ThreadContext::abandon(const AnyRun& run) {
  std::vector<base::NodePtr> dropped;
  for (ReadyTask& task : heap.tasks()) {
    if (task.run != &run) continue;
    task.run = nullptr;
    task.rank.depth = TaskRank::kDeadDepth;
    dropped.push_back(std::move(task.keep));
  }
  return dropped;
}

ThreadContext& thread_context() {
  ThreadContext* context = context_of_thread;
  return context != nullptr ? *context : make_context();
}

void RunMemory::clear() {
  constexpr size_t kKeptSlots = size_t{1} << 16;
  for (base::variable_list* list : {&inputs, &outputs}) {
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
