// One result that a thread fetches before somebody asks for it, and that stays for as long as others are known
// to ask for it soon. A part of a pack unit. Any thread; at most one fetch is announced or under way at a time.
// Knows neither hooks nor what is fetched.
#pragma once

#include "engine/base/mutex.h"
#include "engine/base/stream_mark.h"
#include "engine/base/torch_types.h"

#include <condition_variable>
#include <functional>

namespace overdrive::hooks {

class Prefetch {
 public:
  struct Fetched {
    at::Tensor tensor;
    base::StreamMark ready;  // on the fetching thread's stream
  };
  enum class Announced {
    kNo,       // nothing will be there
    kComing,   // or there: another one who asks is counted in
    kToBeRun,  // run() is to be called soon, on some thread
  };
  // Somebody will ask. Each such call that is not answered with kNo is undone by passed(), or by forget() for
  // all.
  Announced announce() OVERDRIVE_EXCLUDES(mutex_);
  // One who was announced has asked by now, or never will.
  void passed() OVERDRIVE_EXCLUDES(mutex_);
  bool is_announced() OVERDRIVE_EXCLUDES(mutex_);
  // Instead of run(): somebody has it already.
  void have(const Fetched& there) OVERDRIVE_EXCLUDES(mutex_);
  // What was announced, unless it was called off meanwhile. An error of `fetch` is dropped: whoever asks
  // will fetch by itself, and have the error where it belongs.
  void run(const std::function<Fetched()>& fetch) OVERDRIVE_EXCLUDES(mutex_);

  enum class Came { kNot, kInTime, kLate };
  struct Result {
    Fetched fetched;  // undefined: kNot
    Came came = Came::kNot;
  };
  // What was fetched, for one who asks; waits for a fetch that is under way, and calls off one that is not. It
  // stays here when others will ask, too.
  Result take() OVERDRIVE_EXCLUDES(mutex_);
  // What one who asked has made by itself, kept if others will ask.
  void offer(const Fetched& made) OVERDRIVE_EXCLUDES(mutex_);
  // Nobody will ask: drops the result that is there or comes. True when there was one, for nobody.
  bool forget() OVERDRIVE_EXCLUDES(mutex_);

 private:
  enum class State { kNone, kAnnounced, kUnderWay, kUnwanted, kReady };

  base::Mutex mutex_;
  std::condition_variable arrived_;
  State state_ OVERDRIVE_GUARDED_BY(mutex_) = State::kNone;
  int will_ask_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  bool was_taken_ OVERDRIVE_GUARDED_BY(mutex_) = false;  // the result, by one of several
  Fetched result_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace overdrive::hooks
