#include "engine/run/run_memory.h"

namespace overdrive::engine {

void RunMemory::clear() {
  constexpr size_t kKeptSlots = size_t{1} << 16;
  for (base::variable_list* list : {&inputs, &outputs}) {
    list->clear();
    if (list->capacity() > kKeptSlots) base::variable_list().swap(*list);
  }
  if (slots.capacity() > kKeptSlots) {
    std::vector<at::Tensor>().swap(slots);
  } else {
    slots.clear();
  }
  plan.clear();
}

}  // namespace overdrive::engine
