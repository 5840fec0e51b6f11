#include "replay/guard/value_guards.h"

#include "replay/guard/input_signature.h"

#include <algorithm>
#include <cstring>

namespace overdrive::replay {

namespace {

// Memory from outside is compared in each call, so the whole of it must cost little. Data that the host reads
// are small as a rule, and integers more often than not: lengths, places, flags.
constexpr size_t kMostBytes = 4 << 10, kMostBytesOfIntegers = 64 << 10;

size_t most_bytes(bool integers) { return integers ? kMostBytesOfIntegers : kMostBytes; }

bool is_doubted(const Program& program, int index) {
  const Memory& memory = program.memories[index];
  const bool is_there = memory.lives && memory.address;
  if (memory.origin != Origin::kOutside || memory.written || !is_there) return false;
  bool integers = true;
  for (const Value& value : program.values) {
    if (value.memory != index) continue;
    if (value.requires_grad) return false;
    integers &= c10::isIntegralType(value.type, true);
  }
  return memory.bytes <= most_bytes(integers);
}

}  // namespace

ValueGuards::ValueGuards(const Program& program, const std::vector<at::Tensor>& buffers) : inputs_(buffers) {
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin == Origin::kInput && memory.written) forget(buffers[memory.input]);
    if (!is_doubted(program, static_cast<int>(i))) continue;
    outside_.push_back({.memory = static_cast<int>(i),
                        .weak = memory.weak,
                        .address = memory.address,
                        .bytes = std::string(static_cast<const char*>(memory.address), memory.bytes)});
  }
  for (const WeakTensor& weak : program.given) {
    const at::Tensor tensor(weak.lock());
    if (!tensor.defined() || tensor.requires_grad()) continue;
    const c10::Storage& storage = tensor.storage();
    // Zeros that nobody has written have no memory.
    if (!storage.data() || storage.nbytes() > most_bytes(c10::isIntegralType(tensor.scalar_type(), true)))
      continue;
    outside_.push_back({.memory = kGiven,
                        .weak = storage.getWeakStorageImpl(),
                        .address = storage.data(),
                        .bytes = std::string(static_cast<const char*>(storage.data()), storage.nbytes())});
  }
}

bool ValueGuards::holds_outside(int memory) const {
  return std::any_of(outside_.begin(), outside_.end(),
                     [&](const Outside& each) { return each.memory == memory; });
}

// Inputs that are one tensor have one buffer.
void ValueGuards::forget(const at::Tensor& buffer) {
  for (at::Tensor& input : inputs_) {
    if (input.is_same(buffer)) input.reset();
  }
}

bool ValueGuards::Outside::same() const {
  const auto alive = weak.lock();
  return alive && alive->data() == address && alive->nbytes() == bytes.size() &&
         std::memcmp(address, bytes.data(), bytes.size()) == 0;
}

void ValueGuards::settle(const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].defined() && !same_elements(inputs_[i], inputs[i])) inputs_[i].reset();
  }
  std::erase_if(outside_, [](const Outside& each) { return !each.same(); });
}

void ValueGuards::renew(const Program& program, const std::vector<at::Tensor>& buffers) {
  ValueGuards all(program, buffers);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].defined()) inputs_[i] = all.inputs_[i];
  }
  std::erase_if(all.outside_, [&](const Outside& each) {
    return std::none_of(outside_.begin(), outside_.end(), [&](const Outside& known) {
      return known.memory == each.memory && known.address == each.address;
    });
  });
  outside_ = std::move(all.outside_);
}

const char* ValueGuards::difference(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].defined() && !same_elements(inputs_[i], inputs[i])) return "An input";
  }
  return std::all_of(outside_.begin(), outside_.end(), [](const Outside& each) { return each.same(); })
             ? nullptr
             : "A tensor from outside that the function only reads";
}

}  // namespace overdrive::replay
