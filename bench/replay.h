// The oracle: the nodes of a graph called by hand in the order of the engine, with the order
// and every slot worked out beforehand. What a backward would cost if scheduling were free.
// Owned by the measurement; one thread. No hooks, no checks, no errors: not an engine.
#pragma once

#include "bench/graph.h"

#include <cstdint>
#include <vector>

namespace overdrive::bench {

class Replay {
 public:
  explicit Replay(const Graph& graph);
  int64_t nodes() const { return static_cast<int64_t>(steps_.size()); }
  void run();

 private:
  struct Step {
    Node* node;
    uint32_t first_slot;
    uint32_t slots;
    uint32_t first_edge;
  };
  static constexpr uint32_t kNowhere = UINT32_MAX;

  const Graph& graph_;
  std::vector<Step> steps_;
  // Per output of each step, in order: the slot it goes to, or kNowhere.
  std::vector<uint32_t> targets_;
  std::vector<uint32_t> root_slots_;
  variable_list slots_;
};

}  // namespace overdrive::bench
