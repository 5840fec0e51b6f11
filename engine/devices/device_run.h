// One backward with nodes on devices, being run: on the calling thread alone, or with the workers of its
// devices. Made on the calling thread, which waits in run() until the last worker has left. Nodes run as in
// Run, and Note [Lifetime] holds; in addition streams order the gradients on an accelerator. Leaves the choice
// of threads to DevicePlan.
//
// Note [Threads of a run]: the invariants, which the atomics and the functions cite by number.
//  1. A ready node belongs to the thread that takes it from a queue. Two threads share only the counters and
//     the state of nodes that have not run, which InputBuffers locks.
//  2. `load_` counts a task before the task is in a queue, and until it is done and released. A worker enters
//     the run with one of its tasks, and counts itself before that task is done. So `load_` is 0 only when
//     there are no tasks and no workers inside, and then it stays 0.
//  3. The last worker to leave touches nothing of the run afterwards but the caller's queue, and it holds a
//     reference to that.
//  4. A worker that may sleep inside increments `retained_` before it reads the task count, and the thread that
//     finishes the last task reads `retained_` after that. So either the worker sees zero tasks, or that thread
//     sees the worker.
//  5. A thread that waits for a run of its own serves its queue, so that two workers may wait for each other's
//     devices: among all waiting threads, the one with the youngest backward waits for running nodes only.
//
// Note [Locks of a run]: no thread of a run asks for one of these locks while it holds another, so there is no
// order to keep. Nodes and hooks run under none of them.
//
//   caller -- plan_devices -- take() .......................... WorkerGroup: the worker, its thread if new
//     |
//     +-- run_with_workers --+
//                            +-- step -- distribute -- arrive() . InputBuffers, of the node: the sum so far
//   worker -- work -- serve -+      |             |
//     |                             |             +-- push() .... TaskQueue, the node's: a hand-over
//     |                             +-- add_leaf() ............. CallerStreams: streams to wait for at the end
//     +-- take() .............................................. TaskQueue, its own; released to sleep
//
// Two things happen under a lock that are not ours alone: a worker's thread is started under WorkerGroup's (so
// that there is one), which asks the system and counts; and a sum is made under InputBuffers', which is the
// host's code and, of a tensor subclass, perhaps the program's: docs/threading.md says why.
#pragma once

#include "engine/devices/device_plan.h"
#include "engine/devices/device_run_state.h"
#include "engine/devices/first_error.h"
#include "engine/devices/input_buffers.h"
#include "engine/devices/worker_group.h"
#include "engine/node/step.h"

#include <atomic>
#include <memory>
#include <vector>

namespace overdrive::engine {

class DeviceRun final : public SharedRun {
 public:
  // On the calling thread, by backward.cpp. `devices` and `workers` belong together: a worker for each queue
  // but the main one. With workers there is a graph task.
  DeviceRun(HostEngine& engine, ThreadContext& context, RunMemory& memory, ThreadState& state,
            const DevicePlan& devices, const WorkerLease& workers, const RunOptions& options);
  // On the calling thread, after run(). Gives up the tasks that an error has left, where there are no workers.
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // On the calling thread, once, without a lock; returns when no other thread is inside. As Run::run().
  // Afterwards the caller's streams wait for every gradient that was made.
  void run(base::NodePtr root, const base::edge_list& root_edges, const base::variable_list& gradients);
  // On the calling thread, after run().
  base::variable_list take_captured() { return std::move(captured_); }

  // On the worker's thread, by Worker::serve() or by a run that waits there (invariant 5), without a lock.
  void work(Worker& worker, ReadyTask task, WorkerRetention retention) override;

 private:
  // Which thread runs which task. All of these are called without a lock.
  // On the calling thread: every node, from the thread's own heap and from `secondary_heap_`.
  void run_alone();
  // On the calling thread: its own nodes, and tasks of other runs where the thread is a worker's.
  void run_with_workers();
  // On a worker's thread, inside the graph task: `first` and the tasks after it.
  void serve(Worker& worker, QueueIndex queue_index, ReadyTask& first, WorkerRetention retention);
  // On the thread that has run `done`: finishes it, and gives the thread's next task, or none.
  template <typename Wanted, typename Over>
  std::optional<ReadyTask> task_after(DeviceRunState& run_state, ReadyTask& done, Wanted&& wanted, Over&& over,
                                      WaitPolicy policy);
  // On the thread that has run the task: releases its node, then takes it out of the count (invariants 2, 4).
  void finish(ReadyTask& task);
  // On the thread that brought the last gradient, inside of a node: no lock is held, arrive() has returned.
  void make_ready(DeviceRunState& run_state, uint32_t index, base::NodePtr node);
  // On any thread of the run; takes the lock of the queue. Counts first, then pushes (invariant 2).
  void put_into_queue(QueueIndex queue_index, ReadyTask task);
  // On any thread of the run.
  bool has_tasks() const { return load_.load() >= kOneTask; }
  bool is_over() const { return load_.load() == 0; }
  QueueIndex queue_of(const Worker& worker) const;

  // One node, on the thread that took its task, without a lock.
  struct ResultSink;
  // Throws nothing, but at the end of the thread: an error goes to `error_`, and nodes after it do not run.
  void step(DeviceRunState& run_state, const ReadyTask& task);
  // Of step(): takes the gradients of the node and runs it on its stream.
  void evaluate(DeviceRunState& run_state, uint32_t index);

  // Fixed before the first task is ready.
  HostEngine& engine_;
  RunMemory& memory_;
  const DevicePlan& devices_;
  const RunOptions options_;
  const bool grad_mode_;
  base::variable_list captured_;
  const NodeStep step_;
  Worker* const owner_;                             // whose thread it is that called, or null
  std::vector<std::shared_ptr<TaskQueue>> queues_;  // by QueueIndex; none without workers
  std::vector<base::NodePtr> frames_;               // for the worker of each queue to enter a pruned task with

  // The calling thread's. Without workers its main queue is the thread's own heap.
  DeviceRunState caller_;
  ReadyHeap<ReadyTask> secondary_heap_;

  // Each element is used by one thread: the worker of the queue.
  std::vector<uint32_t> visits_;  // of the worker of each queue

  // Any thread's. The first two have locks of their own, the others are atomics.
  InputBuffers input_buffers_;
  CallerStreams streams_;
  FirstError error_;
  // Tasks that are ready or running, and workers inside: invariants 2 and 3. One word, so that only the last to
  // leave wakes the caller. Sequentially consistent, as `retained_` is, because invariant 4 orders the two.
  static constexpr uint64_t kOneInside = 1, kOneTask = uint64_t{1} << 32;
  std::atomic<uint64_t> load_{0};
  // Of the workers inside, how many may be asleep: invariant 4.
  std::atomic<uint32_t> retained_{0};
};

}  // namespace overdrive::engine
