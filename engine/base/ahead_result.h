// A result that a thread makes before its readers ask for it. Owned by the object that the readers share. Any
// thread may call any function; one thread at most makes the result. A reader that asks meanwhile waits. A
// reader that asks before gets nothing, and makes its own. An error of the maker is dropped: the reader that
// makes its own result has the error in the right place. Leaves out which thread makes the result, and when.
#pragma once

#include "engine/base/mutex.h"

#include <unistd.h>

#include <condition_variable>
#include <utility>

namespace overdrive::base {

// `Result` is empty where it converts to false. It is copied when several readers were announced.
template <typename Result>
class AheadResult {
 public:
  enum class Announced {
    kNo,       // nothing will be there
    kComing,   // the result comes or is there, and this reader is counted in
    kToBeRun,  // run() is to be called soon, on some thread
  };
  // A reader will ask. Every call that is not answered with kNo is undone by passed(), or by forget() for all.
  Announced announce() OVERDRIVE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (state_ == State::kUnwanted) return Announced::kNo;
    ++will_ask_;
    if (state_ != State::kNone) return Announced::kComing;
    state_ = State::kAnnounced;
    return Announced::kToBeRun;
  }

  // A reader that was announced has asked, or never will.
  void passed() OVERDRIVE_EXCLUDES(mutex_) {
    Result unused{};  // goes without the lock
    const MutexLock lock(mutex_);
    if (will_ask_ > 0) --will_ask_;
    // A result that no reader has taken stays: the order of the readers is a guess.
    if (will_ask_ > 0 || !was_taken_) return;
    std::swap(unused, result_);
    was_taken_ = false;
    state_ = State::kNone;
  }

  bool is_announced() OVERDRIVE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return state_ == State::kAnnounced;
  }

  // Instead of run(): the result is there already.
  void have(const Result& there) OVERDRIVE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (state_ != State::kAnnounced) return;
    keep(there);
  }

  // Makes the announced result, unless it was called off.
  template <typename Make>
  void run(Make&& make) OVERDRIVE_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (state_ != State::kAnnounced) return;
      state_ = State::kUnderWay;
      process_ = ::getpid();
    }
    Result result{};
    try {
      result = make();
    } catch (...) {
      result = Result{};
    }
    {
      const MutexLock lock(mutex_);
      const bool is_wanted = state_ == State::kUnderWay && static_cast<bool>(result);
      state_ = is_wanted ? State::kReady : State::kNone;
      if (is_wanted) std::swap(result_, result);
    }
    arrived_.notify_all();
  }

  enum class Came {
    kNot,     // the reader makes its own
    kInTime,  // the result was there
    kLate,    // the reader waited for it
  };
  struct Taken {
    Result result{};  // empty: kNot
    Came came = Came::kNot;
  };
  // The result for one reader. Waits while the result is being made, and calls it off where nobody has begun.
  // The result stays here when other readers were announced.
  Taken take() OVERDRIVE_EXCLUDES(mutex_) {
    Taken taken;
    MutexLock lock(mutex_);
    // A child of fork() does not have the thread that is making the result.
    if (state_ == State::kUnderWay && process_ != ::getpid()) state_ = State::kNone;
    const bool late = state_ == State::kUnderWay;
    if (late) {
      lock.wait(arrived_, [this]() OVERDRIVE_REQUIRES(mutex_) { return state_ != State::kUnderWay; });
    }
    if (state_ == State::kReady) {
      was_taken_ = will_ask_ > 1;
      taken = {was_taken_ ? result_ : std::exchange(result_, Result{}), late ? Came::kLate : Came::kInTime};
    }
    if (state_ != State::kUnwanted && !was_taken_) state_ = State::kNone;
    return taken;
  }

  // A result that a reader made by itself, kept if other readers were announced.
  void offer(const Result& made) OVERDRIVE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (will_ask_ < 2 || state_ != State::kNone) return;
    keep(made);
  }

  // No reader will ask: drops the result that is there or comes. True when one was there that no reader took.
  bool forget() OVERDRIVE_EXCLUDES(mutex_) {
    Result unused{};  // goes without the lock
    const MutexLock lock(mutex_);
    std::swap(unused, result_);
    will_ask_ = 0;
    const bool is_being_made = state_ == State::kUnderWay || state_ == State::kUnwanted;
    state_ = is_being_made ? State::kUnwanted : State::kNone;
    return static_cast<bool>(unused) && !std::exchange(was_taken_, false);
  }

 private:
  enum class State {
    kNone,
    kAnnounced,  // run() has not begun
    kUnderWay,   // a thread makes the result
    kUnwanted,   // the same, and the result will be dropped
    kReady,
  };

  void keep(const Result& result) OVERDRIVE_REQUIRES(mutex_) {
    result_ = result;
    was_taken_ = true;
    state_ = State::kReady;
  }

  Mutex mutex_;
  std::condition_variable arrived_;
  State state_ OVERDRIVE_GUARDED_BY(mutex_) = State::kNone;
  int process_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // that makes the result
  int will_ask_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  bool was_taken_ OVERDRIVE_GUARDED_BY(mutex_) = false;  // the result, by one of several
  Result result_ OVERDRIVE_GUARDED_BY(mutex_){};
};

}  // namespace overdrive::base
