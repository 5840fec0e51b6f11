#include "checkpoint/pipeline/stage_threads.h"

#include "checkpoint/early/early.h"
#include "checkpoint/region/phase.h"
#include "checkpoint/region/random_replay.h"
#include "checkpoint/region/run_state.h"
#include "checkpoint/region/surroundings.h"
#include "hooks/hooks.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <vector>

namespace overdrive::checkpoint {

namespace {

thread_local bool tls_is_stage = false;

// One batch on its way. On the caller's stack: it outlives all jobs.
class Passage {
 public:
  Passage(const StageThreads::Work& work, size_t stages)
      : task_(work.task),
        prepare_(work.prepare),
        begin_(work.begin),
        stages_(stages),
        at_(stages, work.begin),
        end_(work.end),
        working_(stages) {}

  // A stage's job.
  void work(size_t stage) noexcept {
    tls_is_stage = true;
    for (size_t part = begin_;; ++part) {
      if (prepare_ && is_wanted(part)) prepare_(part, stage);
      if (!may_take(part, stage)) break;
      std::exception_ptr error;
      try {
        task_(part, stage);
      } catch (...) {
        error = std::current_exception();
      }
      finish(part, stage, error);
    }
    leave(1);
  }

  // No thread for this stage, and so none for those behind it.
  void refuse(size_t stage, std::exception_ptr error) {
    finish(begin_, stage, std::move(error));
    leave(stages_ - stage);
  }

  void wait() {
    base::MutexLock lock(mutex_);
    lock.wait(changed_, [this]() OVERDRIVE_REQUIRES(mutex_) { return working_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  bool is_wanted(size_t part) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return part < end_;
  }

  // Waits until the stage before has done the part; false where it will not.
  bool may_take(size_t part, size_t stage) OVERDRIVE_EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    lock.wait(changed_,
              [&]() OVERDRIVE_REQUIRES(mutex_) { return part >= end_ || stage == 0 || at_[stage - 1] > part; });
    return part < end_;
  }

  // Parts before one that failed go on: one of them may fail, too, and its error comes first.
  void finish(size_t part, size_t stage, std::exception_ptr error) OVERDRIVE_EXCLUDES(mutex_) {
    {
      const base::MutexLock lock(mutex_);
      if (!error) {
        at_[stage] = part + 1;
      } else if (part < end_) {
        end_ = part;
        error_ = std::move(error);
      }
    }
    changed_.notify_all();
  }

  // Notified under the lock: afterwards there may be no passage.
  void leave(size_t stages) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    working_ -= stages;
    changed_.notify_all();
  }

  const StageThreads::Task &task_, &prepare_;
  const size_t begin_;
  const size_t stages_;

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> at_ OVERDRIVE_GUARDED_BY(mutex_);  // the part that each stage does next
  size_t end_ OVERDRIVE_GUARDED_BY(mutex_);              // parts from here on are not begun
  size_t working_ OVERDRIVE_GUARDED_BY(mutex_);          // stages
  std::exception_ptr error_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace

StageThreads::StageThreads(size_t stages) {
  for (size_t i = 0; i < stages; ++i) threads_.emplace_back("overdrive-stage");
}

void StageThreads::run(const Work& work) {
  const RngWatch numbers;
  number_nodes_from(next_node_);
  const Surroundings surroundings;
  const RunState modes;
  // Where the numbers of each part's next nodes begin: twice as far apart as they should need.
  std::vector<uint64_t> next(work.end, next_node());
  for (size_t part = work.begin; part < work.end; ++part) next[part] += (part - work.begin) * 2 * work.nodes;
  Work as_the_caller = work;
  as_the_caller.task = [&](size_t part, size_t stage) {
    surroundings.take_over();
    number_nodes_from(next[part]);
    const RunStateScope scope(modes);
    work.task(part, stage);
    next[part] = next_node();
  };
  if (work.prepare) {
    as_the_caller.prepare = [&](size_t part, size_t stage) {
      surroundings.take_over();
      const RunStateScope scope(modes);
      work.prepare(part, stage);
    };
  }
  Passage passage(as_the_caller, threads_.size());
  {
    const base::MutexLock lock(pushing_);
    for (size_t stage = 0; stage < threads_.size(); ++stage) {
      try {
        threads_[stage].push([&passage, stage] { passage.work(stage); });
      } catch (...) {  // the system refuses a thread
        passage.refuse(stage, std::current_exception());
        break;
      }
    }
  }
  passage.wait();
  number_nodes_from(*std::max_element(next.begin(), next.end()));
  next_node_ = checkpoint::next_node();
  TORCH_CHECK(!numbers.have_moved(),
              "Pipeline: while stages worked at the same time, somebody drew random numbers from the "
              "CPU's generator: a stage that had drawn none for the first micro-batch, or another thread. Set "
              "PipelineOptions::cpu_threads to false.");
}

bool StageThreads::may_work_for_this_thread() {
  return !tls_is_stage && !is_checkpointing() && !is_recomputing() && !detail::inside_layers() &&
         hooks::active_hooks() == nullptr && !at::autocast::is_autocast_enabled(at::kCPU);
}

}  // namespace overdrive::checkpoint
