// The memory of one run: its plan, a slot for each gradient that is on its way, a list to call
// nodes with. Taken from the thread's spare ones and given back, empty, at the end.
#pragma once

#include "engine/plan/plan.h"
#include "engine/run/thread_context.h"

#include <memory>
#include <vector>

namespace overdrive::engine {

struct RunMemory {
  Plan plan;
  std::vector<at::Tensor> slots;
  base::variable_list inputs;
  base::variable_list outputs;

  // Drops every gradient and forgets the graph.
  void clear();
};

class RunMemoryLease {
 public:
  explicit RunMemoryLease(ThreadContext& context) : context_(context) {
    if (context.spare_memory.empty()) {
      memory_ = std::make_unique<RunMemory>();
    } else {
      memory_ = std::move(context.spare_memory.back());
      context.spare_memory.pop_back();
    }
  }
  ~RunMemoryLease() {
    memory_->clear();
    // Few at a time are enough: deep nests give most of theirs back.
    if (context_.spare_memory.size() < 8) context_.spare_memory.push_back(std::move(memory_));
  }
  RunMemoryLease(const RunMemoryLease&) = delete;
  RunMemoryLease& operator=(const RunMemoryLease&) = delete;

  RunMemory& operator*() const { return *memory_; }
  RunMemory* operator->() const { return memory_.get(); }

 private:
  ThreadContext& context_;
  std::unique_ptr<RunMemory> memory_;
};

}  // namespace overdrive::engine
