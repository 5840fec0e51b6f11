#include "replay/guard/shared_memory.h"

namespace overdrive::replay {

SharedMemory::SharedMemory(const Program& program)
    : begin_of_storage_(program.begin_of_storage),
      asked_storages_(program.asked_storages),
      writes_inputs_(program.writes_inputs()) {
  for (const Memory& memory : program.memories) {
    if (memory.origin != Origin::kOutside || (!writes_inputs_ && !memory.written)) continue;
    const auto* begin = static_cast<const char*>(memory.address);
    outside_.push_back({begin, begin + memory.bytes});
  }
}

SharedMemory::Range SharedMemory::range_of(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + end_of(tensor.sizes(), tensor.strides(), 0, tensor.element_size())};
}

bool SharedMemory::harmless(const std::vector<at::Tensor>& inputs) const {
  for (const int input : begin_of_storage_) {
    if (inputs[input].storage_offset() != 0) return false;
  }
  for (const auto& [input, bytes] : asked_storages_) {
    if (inputs[input].storage().nbytes() != bytes) return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Range range = range_of(inputs[i]);
    for (const Range& outside : outside_) {
      if (outside.meets(range)) return false;
    }
    for (size_t k = 0; k < i && writes_inputs_; ++k) {
      if (!inputs[k].is_same(inputs[i]) && range_of(inputs[k]).meets(range)) return false;
    }
  }
  return true;
}

}  // namespace overdrive::replay
