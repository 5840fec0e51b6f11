// One recomputation that was ordered before its node's turn. Shared by the segment that will use it and by
// whoever runs it. The thread that runs it calls run(), the node's thread take(), in any order and at the
// same time. What is ordered, and when, is look_ahead.h's business.
#pragma once

#include "checkpoint/region/surroundings.h"
#include "checkpoint/region/tape.h"
#include "engine/base/mutex.h"

#include <condition_variable>
#include <functional>
#include <memory>

namespace overdrive::checkpoint {

class AheadRun {
 public:
  using Make = std::function<std::unique_ptr<Tape>()>;

  // Ordered by a backward: its graph task.
  AheadRun(int graph_task, Make make);
  AheadRun(const AheadRun&) = delete;
  AheadRun& operator=(const AheadRun&) = delete;

  int graph_task() const { return graph_task_; }
  const Surroundings& surroundings() const { return surroundings_; }

  // Whether run() would make something. What a parent process ordered belongs to its backwards, and may be half
  // done: a child of fork() leaves it.
  bool is_wanted() OVERDRIVE_EXCLUDES(mutex_);
  // Makes the tape, unless it was called off or is made already. Does not throw: what fails here will be tried
  // again by the node, which then has the error.
  void run() noexcept OVERDRIVE_EXCLUDES(mutex_);

  // The tape; waits for it while it is being made. Null when nobody has begun, and then nobody will.
  std::unique_ptr<Tape> take() OVERDRIVE_EXCLUDES(mutex_);

 private:
  enum class State { kOrdered, kRunning, kOver };

  const int graph_task_;
  const int process_;  // a child of fork() does not have the thread that is at it
  const Make make_;
  const Surroundings surroundings_;

  base::Mutex mutex_;
  std::condition_variable changed_;
  State state_ OVERDRIVE_GUARDED_BY(mutex_) = State::kOrdered;
  std::unique_ptr<Tape> tape_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::checkpoint
