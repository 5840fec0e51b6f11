#include "checkpoint/region/surroundings.h"

#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>

namespace overdrive::checkpoint {

Surroundings::Surroundings() : threads_(at::get_num_threads()), next_node_(next_node()) {
  std::fegetenv(&floating_point_);
}

void Surroundings::take_over() const {
  std::fesetenv(&floating_point_);
  if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
  number_nodes_from(next_node_);
}

uint64_t next_node() { return at::sequence_number::peek(); }

void number_nodes_from(uint64_t next) {
  while (next_node() < next) at::sequence_number::get_and_increment();
}

}  // namespace overdrive::checkpoint
