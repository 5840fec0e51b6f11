#include "checkpoint/pipeline/stage_threads.h"

#include "checkpoint/run_state.h"
#include "checkpoint/surroundings.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <vector>

namespace overdrive::checkpoint {

namespace {

// One batch on its way. On the caller's stack: it outlives all jobs.
class Passage {
 public:
  Passage(size_t begin, size_t end, size_t stages, const StageThreads::Task& task)
      : task_(task), begin_(begin), stages_(stages), at_(stages, begin), end_(end), working_(stages) {}

  // A stage's job.
  void work(size_t stage) noexcept {
    for (size_t part = begin_; may_take(part, stage); ++part) {
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

  const StageThreads::Task& task_;
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

void StageThreads::run(size_t begin, size_t end, uint64_t nodes, const Task& task) {
  number_nodes_from(next_node_);
  const Surroundings surroundings;
  const RunState modes;
  // Where the numbers of each part's next nodes begin: twice as far apart as they should need.
  std::vector<uint64_t> next(end, next_node());
  for (size_t part = begin; part < end; ++part) next[part] += (part - begin) * 2 * nodes;
  const Task as_the_caller = [&](size_t part, size_t stage) {
    surroundings.take_over();
    number_nodes_from(next[part]);
    const RunStateScope scope(modes);
    task(part, stage);
    next[part] = next_node();
  };
  Passage passage(begin, end, threads_.size(), as_the_caller);
  for (size_t stage = 0; stage < threads_.size(); ++stage) {
    try {
      threads_[stage].push([&passage, stage] { passage.work(stage); });
    } catch (...) {  // the system refuses a thread
      passage.refuse(stage, std::current_exception());
      break;
    }
  }
  passage.wait();
  number_nodes_from(*std::max_element(next.begin(), next.end()));
  next_node_ = checkpoint::next_node();
}

}  // namespace overdrive::checkpoint
