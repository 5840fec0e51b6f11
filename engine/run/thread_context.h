// What the engine keeps for a thread between backwards: memory, frames, the heap that nested
// backwards share. Used by its own thread only. Lives as long as the thread and, on the main
// thread, for ever; it may be asked for at any time, also while thread-locals are torn down.
#pragma once

#include "engine/host/host.h"
#include "engine/plan/ready_heap.h"

#include <memory>
#include <vector>

namespace overdrive::engine {

struct ActiveRun;
struct RunMemory;
class Worker;

// A node that is ready, and the reference that keeps it alive until its outputs are distributed.
struct ReadyTask {
  TaskRank rank;
  uint32_t node = 0;          // in its run's plan
  const void* run = nullptr;  // whose it is; null: of a backward that failed
  base::NodePtr keep;
};

struct ThreadContext {
  ThreadContext();
  ~ThreadContext();

  ReadyHeap<ReadyTask> heap;
  ActiveRun* innermost = nullptr;          // of our runs on this thread
  Worker* worker = nullptr;                // whose thread this is, if it is a worker's
  host::NodeBits* current_node = nullptr;  // see Note [Current node]
  std::vector<base::NodePtr> spare_frames;
  std::vector<std::unique_ptr<RunMemory>> spare_memory;

  // Gives up what a failed run has in the heap. Stock leaves the ready tasks of a failed nested backward
  // in the queue that it shares with the backwards around it; they come out first and are dropped.
  // Their places stay, because they decide how later ties come out (Note [Ties]); what they held
  // is returned.
  std::vector<base::NodePtr> abandon(const void* run);

  // The gradient that frames are called with. One a thread, so that threads do not share a
  // reference count.
  const at::Tensor& frame_input();

 private:
  at::Tensor frame_input_;
};

ThreadContext& thread_context();

}  // namespace overdrive::engine
