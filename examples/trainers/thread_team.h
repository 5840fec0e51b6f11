// Threads that do a piece of work at the same time, again and again, and wait in between. Owned by the one
// thread that calls run(); the threads end with this object. Knows nothing of the work.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace overdrive::trainers {

class ThreadTeam {
 public:
  explicit ThreadTeam(int size) : errors_(static_cast<size_t>(size)), gate_(size + 1) {
    for (int i = 0; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~ThreadTeam() {
    work_ = nullptr;  // no work: leave
    gate_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls work(i) on thread i for every i, and returns when all are done. What the caller wrote before is seen
  // by the threads, and the other way round after. Throws the error of the lowest i that has one.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    gate_.arrive_and_wait();
    gate_.arrive_and_wait();
    std::exception_ptr first;
    for (std::exception_ptr& error : errors_) {
      const std::exception_ptr taken = std::exchange(error, nullptr);
      if (!first) first = taken;
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  void serve(int i) {
    for (;;) {
      gate_.arrive_and_wait();
      if (work_ == nullptr) return;
      try {
        (*work_)(i);
      } catch (...) {
        errors_[static_cast<size_t>(i)] = std::current_exception();
      }
      gate_.arrive_and_wait();
    }
  }

  // Written by the owner while the threads wait at the gate.
  const std::function<void(int)>* work_ = nullptr;
  // Each element belongs to its thread between two passages of the gate.
  std::vector<std::exception_ptr> errors_;
  std::barrier<> gate_;
  std::vector<std::thread> threads_;
};

}  // namespace overdrive::trainers
