// Threads that do a piece of work at the same time, again and again, and wait in between. Owned by the one
// thread that calls run(); the threads end with this object. Knows nothing of the work.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace overdrive::trainers {

class ThreadTeam {
 public:
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls work(i) on thread i for every i, and returns when all are done. What the caller wrote before is seen
  // by the threads, and the other way round after. Throws the error of the lowest i that has one.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int i);

  // Written by the owner while the threads wait at the gate.
  const std::function<void(int)>* work_ = nullptr;
  // Each element belongs to its thread between two passages of the gate.
  std::vector<std::exception_ptr> errors_;
  std::barrier<> gate_;
  std::vector<std::thread> threads_;
};

}  // namespace overdrive::trainers
