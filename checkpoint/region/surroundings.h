// What decides the bits of a result besides the modes of a region: threads inside an operation, rounding and
// denormals. And the number of the next node, so that nodes made elsewhere come after those that are there. A
// value, taken on one thread and put on another that works for it.
#pragma once

#include <cfenv>
#include <cstdint>

namespace overdrive::checkpoint {

class Surroundings {
 public:
  // Of this thread.
  Surroundings();
  // Makes this thread like that one. For good: the thread has no others.
  void take_over() const;

 private:
  int threads_;
  uint64_t next_node_;
  std::fenv_t floating_point_{};
};

// The number that this thread's next node gets.
uint64_t next_node();
// Raises it.
void number_nodes_from(uint64_t next);

}  // namespace overdrive::checkpoint
