// The first error of a backward that several threads run; it keeps its type. Owned by the run. Any thread
// may set it and ask; the calling thread throws it when all others are done.
#pragma once

#include <atomic>
#include <exception>
#include <utility>

namespace overdrive::engine {

class FirstError {
 public:
  // Later ones are dropped.
  void set(std::exception_ptr error) {
    if (taken_.exchange(true, std::memory_order_acq_rel)) return;
    error_ = std::move(error);
  }
  bool happened() const { return taken_.load(std::memory_order_acquire); }

  // When every thread that could set one is done, in a way that this thread knows of.
  void rethrow_if_any() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr error_;  // written by the one that set taken_
};

}  // namespace overdrive::engine
