// A thread that does one thing at a time for whoever waits: a fresh thread has fresh sequence
// numbers and fresh thread-local state. Owned by one run of a program, joined in the destructor.
// Does not catch what the work throws.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace overdrive::fuzz {

// Opens something on a thread; what it returns is given up on that thread when the program ends.
using LaneScope = std::function<std::shared_ptr<void>()>;

class Lane {
 public:
  Lane();
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs `work`, which must not throw, on the lane's thread; returns when it is done.
  void run(const std::function<void()>& work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace overdrive::fuzz
