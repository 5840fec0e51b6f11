// A gate for concurrency tests: threads wait until a number of them have arrived. Used
// instead of sleeping. Any thread may arrive; owned by the test, outlives its threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace overdrive::test {

class Gate {
 public:
  explicit Gate(int expected) : missing_(expected) {}

  // Returns when all have come. Coming after the gate has opened does not wait.
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    if (--missing_ <= 0) opened_.notify_all();
    opened_.wait(lock, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  int missing_;
};

// Runs `body(index)` on `count` threads at once and joins them; the first error is rethrown.
inline void on_threads(int count, const std::function<void(int)>& body) {
  Gate gate(count);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      try {
        body(i);
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace overdrive::test
