// Numbers of the program in a recording: which operators change what they write by a number that may be another
// one later, as a rate. Numbers inside a forward and a backward are the model's and the loss's, and do not
// count.
#include "engine/base/no_destructor.h"
#include "replay/record/compare.h"
#include "replay/record/program.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

namespace overdrive::replay {

namespace {

// aten::_foreach_add_.Scalar -> add
std::string_view arithmetic_name(std::string_view name) {
  name.remove_prefix(std::min(name.find("::") + 2, name.size()));
  name = name.substr(0, name.find('.'));
  if (constexpr std::string_view list = "_foreach_"; name.starts_with(list)) name.remove_prefix(list.size());
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

// Element by element: an update of parameters is made of these.
bool is_arithmetic(const std::string& name) {
  static base::NoDestructor<std::unordered_set<std::string_view>> names(std::unordered_set<std::string_view>{
      "abs",     "add",     "addcdiv", "addcmul", "clamp", "clamp_max",  "clamp_min", "clone",
      "copy",    "div",     "exp",     "fill",    "full",  "lerp",       "log",       "masked_fill",
      "maximum", "minimum", "mul",     "neg",     "pow",   "reciprocal", "rsqrt",     "rsub",
      "sign",    "sqrt",    "square",  "sub",     "where", "_to_copy",   "full_like", "scalar_tensor"});
  return (*names).contains(arithmetic_name(name));
}

// Statistics with a momentum, and rows that are shortened to a module's max_norm: options of modules. The
// updates of Overdrive read their numbers from tensors.
bool has_a_modules_number(const std::string& name) {
  return name.find("batch_norm") != name.npos || name == "aten::embedding_renorm_" ||
         name.starts_with("overdrive::");
}

bool takes_numbers(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return takes_numbers(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>()) return takes_numbers(list->getElementType());
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

template <typename T>
bool holds_one(const std::string& bytes) {
  T number = 0;
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&number, bytes.data(), sizeof(T));
  return number == T{1};
}

bool is_one(const c10::IValue& number) {
  return number.isInt() ? number.toInt() == 1 : number.isDouble() && number.toDouble() == 1;
}

bool is_one(const std::string& bytes, at::ScalarType type) {
  return type == at::kLong ? holds_one<int64_t>(bytes) : type == at::kDouble && holds_one<double>(bytes);
}

}  // namespace

// What was found on the way back through an update.
struct Program::Arithmetic {
  bool number = false;
  std::unordered_set<int> memories = {};
  std::unordered_set<size_t> operators = {};
};

// Wrapped in a tensor, or written into one by hand, as torch.tensor() does.
bool Program::is_number(int value) const {
  const Memory& memory = memory_of(value);
  if (memory.origin != Origin::kConstant && memory.host_filled < 0) return false;
  if (memory.number >= 0) return false;
  return values[value].wrapped || c10::isFloatingType(values[value].type);
}

// Given as an argument, other than the schema's default, or in a tensor. A count that goes on by 1 has none.
bool Program::has_number(const Operator& op) const {
  const bool sum = arithmetic_name(op.name) == "add" || arithmetic_name(op.name) == "sub";
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < op.in.size(); ++i) {
    const Argument& in = op.in[i];
    if (in.kind == Argument::Kind::kConstant) {
      if (in.number >= 0 || !takes_numbers(arguments[i].type()) || in.constant.isNone()) continue;
      if (in.constant.isList() && in.constant.toListRef().empty()) continue;
      if (sum && is_one(in.constant)) continue;
      const auto& usual = arguments[i].default_value();
      if (!usual || !same_constant(*usual, in.constant)) return true;
      continue;
    }
    for (const int value : in.values) {
      if (value < 0 || !is_number(value)) continue;
      if (!sum || !is_one(memory_of(value).constant, values[value].type)) return true;
    }
  }
  return false;
}

bool Program::changes_by_a_number(size_t op) const {
  const Operator& each = operators[op];
  if (each.vanishes || each.in_backward || each.writes.empty() || has_a_modules_number(each.name)) return false;
  if (has_number(each)) return true;
  Arithmetic found;
  for (const Argument& in : each.in) {
    for (const int value : in.values) follow(value, op, found);
  }
  return found.number;
}

bool Program::carries_on(size_t op, int memory) const {
  const Operator& each = operators[op];
  const std::string_view name = arithmetic_name(each.name);
  const auto& arguments = each.handle.schema().arguments();
  Arithmetic found;
  for (size_t i = 0; i < each.in.size(); ++i) {
    for (const int value : each.in[i].values) {
      if (value < 0) continue;
      const bool only_written = arguments[i].is_out() || (i == 0 && (name == "copy" || name == "fill"));
      if (values[value].memory == memory && !only_written && is_arithmetic(each.name)) return true;
      if (values[value].memory != memory) follow(value, op, found);
    }
  }
  return found.memories.contains(memory);
}

// Back through what made the value, as long as that is arithmetic outside a backward.
void Program::follow(int value, size_t before, Arithmetic& found) const {
  if (value < 0) return;
  const int memory = values[value].memory;
  found.memories.insert(memory);
  const auto makes = [&](const Operator& op) {
    if (op.vanishes) return false;
    if (std::find(op.writes.begin(), op.writes.end(), memory) != op.writes.end()) return true;
    return std::any_of(op.out.begin(), op.out.end(), [&](const Argument& out) {
      return std::any_of(out.values.begin(), out.values.end(),
                         [&](int made) { return made >= 0 && values[made].memory == memory; });
    });
  };
  size_t i = before;
  while (i > 0 && !makes(operators[i - 1])) --i;
  if (i == 0 || !found.operators.insert(i - 1).second) return;
  const Operator& op = operators[i - 1];
  if (op.in_backward || !is_arithmetic(op.name)) return;
  found.number |= has_number(op);
  for (const Argument& in : op.in) {
    for (const int each : in.values) follow(each, i - 1, found);
  }
}

}  // namespace overdrive::replay
