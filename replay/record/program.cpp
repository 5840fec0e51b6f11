#include "replay/record/program.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// How far back a number is looked for that a tensor was multiplied by.
constexpr int kDepth = 2;

bool is_one(const c10::IValue& number) {
  return !number.isScalar() || number.isBool() ||
         (number.isInt() ? number.toInt() == 1 : number.isDouble() && number.toDouble() == 1);
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const char* beginning) { return name.starts_with(beginning); });
}

}  // namespace

size_t end_of(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, size_t element) {
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return static_cast<size_t>(last + 1) * element;
}

// As an argument, or wrapped in a tensor.
bool Program::has_number(const Operator& op) const {
  return std::any_of(op.in.begin(), op.in.end(), [&](const Argument& argument) {
    if (argument.kind == Argument::Kind::kConstant) return !is_one(argument.constant);
    return argument.is_tensor() && argument.values[0] >= 0 && values[argument.values[0]].wrapped;
  });
}

bool Program::changes_by_a_number(size_t op) const {
  const Operator& each = operators[op];
  const bool sum = starts_with_any(each.name, {"aten::add_.", "aten::sub_."});
  if (sum || starts_with_any(each.name, {"aten::addcdiv_", "aten::addcmul_", "aten::_foreach_add"})) {
    if (has_number(each)) return true;
  }
  if (!sum && each.name != "aten::copy_") return false;
  return each.in[1].is_tensor() && made_with_a_number(each.in[1].values[0], op, kDepth);
}

bool Program::made_with_a_number(int value, size_t before, int depth) const {
  if (value < 0) return false;
  const int memory = values[value].memory;
  const auto makes = [&](const Operator& op) {
    if (op.vanishes) return false;
    if (std::find(op.writes.begin(), op.writes.end(), memory) != op.writes.end()) return true;
    return std::any_of(op.out.begin(), op.out.end(), [&](const Argument& out) {
      return out.is_tensor() && out.values[0] >= 0 && values[out.values[0]].memory == memory;
    });
  };
  for (size_t i = before; i-- > 0;) {
    const Operator& op = operators[i];
    if (!makes(op)) continue;
    if (!starts_with_any(op.name, {"aten::mul", "aten::div", "aten::add", "aten::sub", "aten::neg"}))
      return false;
    if (has_number(op)) return true;
    return depth > 0 && std::any_of(op.in.begin(), op.in.end(), [&](const Argument& in) {
             return in.is_tensor() && made_with_a_number(in.values[0], i, depth - 1);
           });
  }
  return false;
}

bool Program::uses_random_numbers() const {
  return std::any_of(operators.begin(), operators.end(),
                     [](const Operator& op) { return op.handle.hasTag(at::Tag::nondeterministic_seeded); });
}

bool Program::is_used(int memory) const {
  const auto touches = [&](const Argument& argument) {
    return std::any_of(argument.values.begin(), argument.values.end(),
                       [&](int value) { return value >= 0 && values[value].memory == memory; });
  };
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
