#include "examples/trainers/thread_team.h"

#include <utility>

namespace overdrive::trainers {

ThreadTeam::ThreadTeam(int size) : errors_(static_cast<size_t>(size)), gate_(size + 1) {
  for (int i = 0; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
}

ThreadTeam::~ThreadTeam() {
  work_ = nullptr;  // no work: leave
  gate_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run(const std::function<void(int)>& work) {
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

void ThreadTeam::serve(int i) {
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

}  // namespace overdrive::trainers
