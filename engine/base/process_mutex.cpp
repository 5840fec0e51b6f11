#include "engine/base/process_mutex.h"

#include "engine/base/no_destructor.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace overdrive::base {
namespace {

// All locks of the library that a fork takes, in the order in which they were made.
class ForkHandler {
 public:
  static ForkHandler& get() {
    static NoDestructor<ForkHandler> handler;
    return *handler;
  }

  ForkHandler() {
    pthread_atfork([] { get().hold_all(); }, [] { get().let_all_go(); }, [] { get().begin_child(); });
  }

  void add(HeldAtFork& lock) {
    const std::lock_guard guard(mutex_);
    locks_.push_back(&lock);
  }
  void remove(const HeldAtFork& lock) {
    const std::lock_guard guard(mutex_);
    std::erase(locks_, &lock);
  }
  std::vector<HeldAtFork*> locks() {
    const std::lock_guard guard(mutex_);
    return locks_;
  }

 private:
  // Threads nest these locks in orders that this function does not know, and make new locks while they hold
  // others. So the function waits for no lock while it holds one: it takes all, or it gives all back and tries
  // again.
  void hold_all() {
    constexpr int kYields = 64;
    for (int tries = 0; !try_hold_all(); ++tries) {
      if (tries < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  bool try_hold_all() {
    if (!mutex_.try_lock()) return false;
    for (size_t held = 0; held < locks_.size(); ++held) {
      if (locks_[held]->try_hold()) continue;
      while (held > 0) locks_[--held]->let_go();
      mutex_.unlock();
      return false;
    }
    return true;
  }
  void let_all_go() {
    for (size_t held = locks_.size(); held > 0; --held) locks_[held - 1]->let_go();
    mutex_.unlock();
  }
  void begin_child() {
    let_all_go();
    for (HeldAtFork* lock : locks()) lock->begin_child();
  }

  std::mutex mutex_;
  std::vector<HeldAtFork*> locks_;  // guarded by mutex_, which a fork holds from one handler to the next
};

}  // namespace

HeldAtFork::HeldAtFork(const char* name, InChild in_child) : name_(name), in_child_(in_child) {
  ForkHandler::get().add(*this);
}
HeldAtFork::~HeldAtFork() { ForkHandler::get().remove(*this); }

bool RecursiveProcessMutex::is_mine() const {
  return is_held_.load(std::memory_order_acquire) &&
         pthread_equal(owner_.load(std::memory_order_relaxed), pthread_self()) != 0;
}
void RecursiveProcessMutex::take() {
  owner_.store(pthread_self(), std::memory_order_relaxed);
  is_held_.store(true, std::memory_order_release);
  depth_ = 1;
}
void RecursiveProcessMutex::lock() {
  if (is_mine()) {
    ++depth_;
    return;
  }
  mutex_.lock();
  take();
}
bool RecursiveProcessMutex::try_hold() {
  if (is_mine()) {
    ++depth_;
    return true;
  }
  if (!mutex_.try_lock()) return false;
  take();
  return true;
}
void RecursiveProcessMutex::unlock() {
  if (--depth_ > 0) return;
  is_held_.store(false, std::memory_order_relaxed);
  mutex_.unlock();
}

std::vector<HeldAtFork*> locks_held_at_fork() { return ForkHandler::get().locks(); }

}  // namespace overdrive::base
