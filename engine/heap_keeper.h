// Decides how much free memory glibc keeps for this process, and remembers how to undo it. One object for the
// process, never destroyed; any thread. Leaves to base/glibc_heap how glibc is told.
//
// Note [Memory that stays]: the sequence of large blocks that a step allocates and frees is the same under our
// engine as under stock, but a small block more or less decides which of them lie at the top of glibc's heap.
// What is free there goes back to the system as soon as it exceeds the trim threshold, and comes back a page
// fault at a time in the next step: the number of faults is chaotic, and no order of frees is safe. With the
// trim threshold above what a step frees there are none. The mmap threshold stays as glibc has learned it,
// because a larger one costs memory: the most that an LSTM held rose by 18 % with 32 MiB from the start, and by
// less than 1 % with the learned one. Rejected: an order of our own (there is nothing to order); a pool for the
// backward (the forward faults on). What it gives: a training step of a wide model takes no more page faults
// than under stock (the models of bench/page_faults). What it costs: up to kOwnLimit of free memory, less in a
// small control group, while the engine is installed.
#pragma once

#include "engine/base/glibc_heap.h"
#include "engine/base/process_mutex.h"

#include <cstdint>
#include <optional>

namespace overdrive::engine {

class HeapKeeper {
 public:
  // Of what stays by our own decision: at most this, and a sixteenth of the memory that the process may use.
  static constexpr size_t kOwnLimit = size_t{256} << 20;
  static constexpr uint64_t kOwnPart = 16;

  static HeapKeeper& get();

  // What keep_memory() does.
  bool keep(size_t bytes) OVERDRIVE_EXCLUDES(mutex_);

  // Options::keep_memory_mib of an install(). -1: look() may decide, unless the program or the environment has
  // spoken. To ask for the same again changes nothing: the program may have called keep_memory() in between.
  void begin_install(int mebibytes) OVERDRIVE_EXCLUDES(mutex_);
  // Gives back what stays by our own decision or by the options. What keep_memory() asked for stays.
  void end_install() OVERDRIVE_EXCLUDES(mutex_);

  // Compares the page faults of the process with those at the last look, `backwards` ago.
  void look(uint64_t backwards) OVERDRIVE_EXCLUDES(mutex_);

  // The bytes that may stay at the top of a heap by our doing; 0 when glibc decides.
  size_t limit() OVERDRIVE_EXCLUDES(mutex_);

 private:
  enum class Way {
    kUndecided,  // before the first install()
    kLooking,    // page faults are counted
    kOwn,        // steps took page faults, and the keeper set the thresholds
    kAsked,      // the program or the environment did
    kOff,        // glibc decides
  };

  void look_locked(uint64_t backwards) OVERDRIVE_REQUIRES(mutex_);
  bool keep_locked(size_t bytes) OVERDRIVE_REQUIRES(mutex_);
  // False where glibc cannot be asked, or did not take the thresholds.
  bool set(const base::HeapThresholds& wanted) OVERDRIVE_REQUIRES(mutex_);
  bool learn() OVERDRIVE_REQUIRES(mutex_);
  bool undo() OVERDRIVE_REQUIRES(mutex_);

  base::ProcessMutex mutex_{"heap keeper"};
  Way way_ OVERDRIVE_GUARDED_BY(mutex_) = Way::kUndecided;
  std::optional<size_t> by_program_ OVERDRIVE_GUARDED_BY(mutex_);  // what keep_memory() asked for
  int by_options_ OVERDRIVE_GUARDED_BY(mutex_) = -1;               // MiB
  bool has_learned_ OVERDRIVE_GUARDED_BY(mutex_) = false;
  bool changed_ OVERDRIVE_GUARDED_BY(mutex_) = false;         // our thresholds are in force
  base::HeapThresholds before_ OVERDRIVE_GUARDED_BY(mutex_);  // our first change, once learned
  base::HeapThresholds now_ OVERDRIVE_GUARDED_BY(mutex_);     // as we set them
  int64_t faults_ OVERDRIVE_GUARDED_BY(mutex_) = -1;          // at the last look
};

// Called at the beginning of every backward that is not nested; looks at the 8th, 16th, 32nd and 64th of a
// thread and then at every 64th.
void note_backward_for_heap();

}  // namespace overdrive::engine
