// The operators that a function calls on this thread and that make a node of the graph, by name and in order.
// For the comparison of two runs: an operator without a node (a counter, a buffer that only one run writes) may
// differ. Operators inside operators do not count.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

// Listens while it lives, on the thread that made it. Several nest.
class Differentiated {
 public:
  Differentiated();
  ~Differentiated();
  Differentiated(const Differentiated&) = delete;
  Differentiated& operator=(const Differentiated&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  // The operator that runs now and, since it saves a tensor, makes a node; empty between operators.
  std::string current() const { return depth_ == 0 ? std::string() : current_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& op);
  static void end(const at::RecordFunction& op, at::ObserverContext* context);

  Differentiated* const outer_;
  at::CallbackHandle handle_{};  // of the outermost
  std::vector<std::string> names_;
  int depth_ = 0;
  std::string current_;  // the operator at depth 0
  uint64_t nodes_before_ = 0;
};

}  // namespace overdrive::checkpoint
