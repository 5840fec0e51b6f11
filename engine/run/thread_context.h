// The engine's state of one thread: spare memory and frames, and the heap that nested backwards share. Used by
// its thread alone. Lives as long as the thread and, on the main thread, for ever. thread_context() may be
// called at any time, also while thread-locals are torn down.
#pragma once

#include "engine/host/host_frame.h"
#include "engine/node/step.h"
#include "engine/plan/plan.h"
#include "engine/plan/ready_heap.h"

#include <memory>
#include <vector>

namespace overdrive::engine {

// The run that a task belongs to. Run and DeviceRun derive from it.
struct AnyRun {};

// A node that is ready to run, as it waits in a heap or a queue.
struct ReadyTask {
  TaskRank rank;
  uint32_t node = 0;      // in its run's plan
  AnyRun* run = nullptr;  // lives until all its tasks are done; null in a task of a backward that failed
  base::NodePtr keep;     // keeps the node alive until its outputs are distributed
};

// The memory of one run: its plan, a slot for each gradient that is on its way, a list to call nodes with. A
// RunMemoryLease takes it from the thread's spare ones and gives it back, empty, at the end.
struct RunMemory {
  Plan plan;
  std::vector<at::Tensor> slots;
  GradientLists lists;  // of the node that the calling thread runs

  // Drops every gradient and forgets the graph.
  void clear();
};

struct ActiveRun;
class Worker;

struct ThreadContext {
  ReadyHeap<ReadyTask> heap;
  ActiveRun* innermost = nullptr;  // of our runs on this thread
  Worker* worker = nullptr;        // whose thread this is, if it is a worker's
  ThreadFrames frames;
  std::vector<std::unique_ptr<RunMemory>> spare_memory;

  // Gives up the tasks of a failed run, and their nodes. Allocates nothing. Stock leaves the ready tasks
  // of a failed nested backward in the queue that it shares with the backwards around it; they come out first
  // and are dropped. So their places stay in the heap: they decide how later ties come out (Note [Ties]).
  void abandon(const AnyRun& run);
};

ThreadContext& thread_context();

class RunMemoryLease {
 public:
  // Few at a time are enough: deep nests give most of theirs back.
  static constexpr size_t kMostSpare = 8;

  explicit RunMemoryLease(ThreadContext& context) : context_(context) {
    if (context.spare_memory.empty()) {
      memory_ = std::make_unique<RunMemory>();
    } else {
      memory_ = std::move(context.spare_memory.back());
      context.spare_memory.pop_back();
    }
  }
  ~RunMemoryLease() {
    memory_->clear();
    // The list has room for so many from the beginning.
    if (context_.spare_memory.size() < kMostSpare) context_.spare_memory.push_back(std::move(memory_));
  }
  RunMemoryLease(const RunMemoryLease&) = delete;
  RunMemoryLease& operator=(const RunMemoryLease&) = delete;

  RunMemory& operator*() const { return *memory_; }
  RunMemory* operator->() const { return memory_.get(); }

 private:
  ThreadContext& context_;
  std::unique_ptr<RunMemory> memory_;
};

}  // namespace overdrive::engine
