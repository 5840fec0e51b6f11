#include "replay/guard/shared_memory.h"

#include <algorithm>

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
  std::sort(outside_.begin(), outside_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const Range& range : outside_) {
    if (kept > 0 && range.begin < outside_[kept - 1].end) {
      outside_[kept - 1].end = std::max(outside_[kept - 1].end, range.end);
    } else {
      outside_[kept++] = range;
    }
  }
  outside_.resize(kept);
}

bool SharedMemory::meets_outside(const Range& range) const {
  const auto first = std::partition_point(outside_.begin(), outside_.end(),
                                          [&](const Range& outside) { return outside.end <= range.begin; });
  return first != outside_.end() && first->begin < range.end;
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
    if (meets_outside(range)) return false;
    for (size_t k = 0; k < i && writes_inputs_; ++k) {
      if (!inputs[k].is_same(inputs[i]) && range_of(inputs[k]).meets(range)) return false;
    }
  }
  return true;
}

}  // namespace overdrive::replay
