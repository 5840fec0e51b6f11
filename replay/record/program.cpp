#include "replay/record/program.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>

namespace overdrive::replay {

size_t end_of(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, size_t element) {
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * element;
}

bool Program::is_result(int memory) const {
  return std::any_of(results.begin(), results.end(),
                     [&](int value) { return value >= 0 && values[value].memory == memory; });
}

// What the backward of a part reads is still there for a second backward, and results are copied out at the
// end.
int Program::last_use(int memory) const {
  const Memory& used = memories[memory];
  if (!is_part()) return used.last;
  const bool crosses = used.first < backward_begins && used.last >= backward_begins;
  return crosses || is_result(memory) ? static_cast<int>(operators.size()) : used.last;
}

int Program::segment_of(int op) const {
  return static_cast<int>(std::upper_bound(backwards.begin(), backwards.end(), op) - backwards.begin());
}

int Program::end_of_backward(size_t i) const {
  return i + 1 < backwards.size() ? backwards[i + 1] : static_cast<int>(operators.size());
}

size_t Program::gradients_of_each() const {
  return backwards.empty() ? 0 : (results.size() - outputs) / backwards.size();
}

int Program::only_maker(int memory) const {
  const auto lies_there = [&](int value) { return value >= 0 && values[value].memory == memory; };
  const auto touches = [&](const Argument& argument) { return this->touches(argument, memory); };
  if (!is_part() || memories[memory].origin != Origin::kMade || memories[memory].first < backward_begins ||
      std::count_if(results.begin(), results.end(), lies_there) != 1) {
    return -1;
  }
  int maker = -1;
  for (size_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators[i];
    if (op.vanishes) continue;
    const bool reads = std::any_of(op.in.begin(), op.in.end(), touches);
    const bool makes = std::any_of(op.out.begin(), op.out.end(), touches);
    if (reads || (makes && maker >= 0)) return -1;
    if (makes) maker = static_cast<int>(i);
  }
  return maker;
}

bool Program::is_gradient(int memory) const {
  return std::any_of(outside.begin(), outside.end(), [&](const OutsideTensor& tensor) {
    return values[tensor.value].memory == memory &&
           std::any_of(gradients.begin(), gradients.end(),
                       [&](const LeafGradient& gradient) { return gradient.before == tensor.raw; });
  });
}

bool Program::is_wrapped(int memory) const {
  return std::any_of(values.begin(), values.end(),
                     [&](const Value& value) { return value.memory == memory && value.wrapped; });
}

bool Program::uses_random_numbers() const {
  return std::any_of(operators.begin(), operators.end(),
                     [](const Operator& op) { return op.handle.hasTag(at::Tag::nondeterministic_seeded); });
}

bool Program::touches(const Argument& argument, int memory) const {
  return std::any_of(argument.values.begin(), argument.values.end(),
                     [&](int value) { return value >= 0 && values[value].memory == memory; });
}

bool Program::uses_memory_of(const at::Tensor& tensor) const {
  const auto* storage = tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  return std::any_of(memories.begin(), memories.end(), [&](const Memory& memory) {
    return memory.raw == storage && memory.origin != Origin::kInput;
  });
}

bool Program::is_used(int memory) const {
  const auto touches = [&](const Argument& argument) { return this->touches(argument, memory); };
  return std::any_of(operators.begin(), operators.end(), [&](const Operator& op) {
    return !op.vanishes && (std::any_of(op.in.begin(), op.in.end(), touches) ||
                            std::any_of(op.out.begin(), op.out.end(), touches));
  });
}

size_t Program::used_bytes(int memory) const {
  size_t end = 0;
  for (const Value& value : values) {
    if (value.memory == memory) end = std::max(end, value.end());
  }
  return std::min(end, memories[memory].bytes);
}

bool Program::is_new_gradient(const Memory& memory) const {
  return memory.origin == Origin::kMade &&
         std::any_of(gradients.begin(), gradients.end(), [&](const auto& gradient) {
           const at::Tensor after(gradient.after ? gradient.after->lock() : nullptr);
           return after.defined() && after.has_storage() &&
                  after.storage().unsafeGetStorageImpl() == memory.raw;
         });
}

bool Program::writes_inputs() const {
  return std::any_of(memories.begin(), memories.end(),
                     [](const Memory& memory) { return memory.origin == Origin::kInput && memory.written; });
}

}  // namespace overdrive::replay
