#include "replay/run/call_numbers.h"

#include "engine/operators/facts.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <set>

namespace overdrive::replay {

namespace {

// Of other types a number may be out of range, and the operator throws.
bool has_tensors_for_any_number(const Program& program, const Operator& op) {
  const auto fits = [&](const Argument& argument) {
    return std::all_of(argument.values.begin(), argument.values.end(), [&](int value) {
      if (value < 0) return true;
      const at::ScalarType type = program.values[value].type;
      return type == at::kFloat || type == at::kDouble || type == at::kBool;
    });
  };
  return std::all_of(op.in.begin(), op.in.end(), fits) && std::all_of(op.out.begin(), op.out.end(), fits);
}

bool takes_any_number(const Program& program, const Operator& op) {
  return engine::facts_of(op.name).takes_any_number && has_tensors_for_any_number(program, op);
}

bool is_double(const Argument& argument) {
  return argument.kind == Argument::Kind::kConstant && argument.constant.isDouble();
}

double number_in(const Memory& memory) {
  double number = 0;
  std::memcpy(&number, memory.constant.data(), sizeof number);
  return number;
}

// Whether an operator reads the memory as an argument that is others'.
bool is_read_as(const Program& program, int index, const MayDiffer& is_others) {
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    for (size_t k = 0; k < op.in.size(); ++k) {
      if (program.touches(op.in[k], index) && is_others(i, k)) return true;
    }
  }
  return false;
}

// Whether the memory is a number that LibTorch wrapped, and those who read it take any.
bool may_be_any(const Program& program, int index) {
  const Memory& memory = program.memories[index];
  if (memory.origin != Origin::kConstant || !memory.is_passed || memory.written ||
      memory.constant.size() < sizeof(double))
    return false;
  for (const Value& value : program.values) {
    if (value.memory == index && (!value.wrapped || value.type != at::kDouble || value.offset != 0))
      return false;
  }
  return std::all_of(program.operators.begin(), program.operators.end(), [&](const Operator& op) {
    const bool reads =
        std::any_of(op.in.begin(), op.in.end(), [&](const Argument& in) { return program.touches(in, index); });
    return !reads || op.vanishes || takes_any_number(program, op);
  });
}

}  // namespace

void CallNumbers::begin() {
  arguments_.clear();
  wrapped_.clear();
  is_proven_ = false;
  before_ = given_.now();
}

bool CallNumbers::may_prove() const {
  const std::vector<double> now = given_.now();
  for (size_t i = 0; i < std::min(before_.size(), now.size()); ++i) {
    if (same_bits(before_[i], now[i])) return false;
  }
  return true;
}

Refusal CallNumbers::find(const Program& before, Program& now, const MayDiffer& is_others) {
  now_ = given_.now();
  if (now_.empty()) return "";
  Refusal found;
  if (before_.size() != now_.size()) {
    found = "The calls have another number of numbers.";
  } else if (!is_proven_ && !may_prove()) {
    found = "A number that the function makes of an argument is the same for two values of it.";
  }
  if (found.empty()) found = find_arguments(before, now, is_others);
  if (found.empty()) found = find_wrapped(before, now, is_others);
  before_ = now_;
  is_proven_ = found.empty();
  return found;
}

int CallNumbers::number_of(double before, double now) const {
  int found = -1;
  for (size_t i = 0; i < now_.size(); ++i) {
    if (!same_bits(before_[i], before) || !same_bits(now_[i], now)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

Refusal CallNumbers::find_arguments(const Program& before, Program& now, const MayDiffer& is_others) {
  for (const Use& use : arguments_) {
    auto& operators = now.operators;
    if (use.op < static_cast<int>(operators.size()) && is_double(operators[use.op].in[use.argument]) &&
        same_bits(operators[use.op].in[use.argument].constant.toDouble(), now_[use.number])) {
      operators[use.op].in[use.argument].number = static_cast<int>(use.number);
      continue;
    }
    const std::string& name = before.operators[use.op].name;
    return {c10::str("A number of ", name, " comes from another argument in each call."), name};
  }
  for (size_t i = 0; i < std::min(before.operators.size(), now.operators.size()); ++i) {
    const Operator& x = before.operators[i];
    Operator& y = now.operators[i];
    if (x.name != y.name || x.in.size() != y.in.size()) return "";  // a difference that others tell
    if (y.vanishes) continue;
    for (size_t k = 0; k < x.in.size(); ++k) {
      if (!is_double(x.in[k]) || !is_double(y.in[k]) || is_number(i, k) || is_others(i, k)) continue;
      const double was = x.in[k].constant.toDouble(), is = y.in[k].constant.toDouble();
      const int number = same_bits(was, is) || !y.in[k].is_passed ? -1 : number_of(was, is);
      if (number < 0 || !takes_any_number(now, y)) continue;
      arguments_.push_back({static_cast<int>(i), static_cast<int>(k), static_cast<size_t>(number)});
      y.in[k].number = number;
    }
  }
  return "";
}

Refusal CallNumbers::find_wrapped(const Program& before, Program& now, const MayDiffer& is_others) {
  if (before.memories.size() != now.memories.size()) return "";
  wrapped_.clear();
  for (size_t i = 0; i < now.memories.size(); ++i) {
    const Memory& was = before.memories[i];
    Memory& memory = now.memories[i];
    const int index = static_cast<int>(i);
    if (was.number >= 0) {
      if (!may_be_any(now, index) || !same_bits(number_in(memory), now_[was.number]))
        return "A number comes from another argument in each call.";
      memory.number = was.number;
    } else if (may_be_any(before, index) && may_be_any(now, index) && !is_read_as(now, index, is_others) &&
               !same_bits(number_in(was), number_in(memory))) {
      memory.number = number_of(number_in(was), number_in(memory));
    }
    if (memory.number >= 0) wrapped_.push_back({index, static_cast<size_t>(memory.number)});
  }
  return "";
}

void CallNumbers::forget(Program& now) {
  arguments_.clear();
  wrapped_.clear();
  is_proven_ = false;
  for (Memory& memory : now.memories) memory.number = -1;
  for (Operator& op : now.operators) {
    for (Argument& argument : op.in) argument.number = -1;
  }
}

bool CallNumbers::is_number(size_t op, size_t argument) const {
  return std::any_of(arguments_.begin(), arguments_.end(), [&](const Use& use) {
    return use.op == static_cast<int>(op) && use.argument == static_cast<int>(argument);
  });
}

bool CallNumbers::is_read_by(size_t op) const {
  return std::any_of(arguments_.begin(), arguments_.end(),
                     [&](const Use& use) { return use.op == static_cast<int>(op); });
}

void CallNumbers::declare(ReplayRun& run) const {
  for (const Use& use : arguments_) {
    run.state_of(use.op).set_number(use.argument, now_[use.number]);
    run.declare_number(use.op, use.argument, now_[use.number]);
  }
}

void CallNumbers::bind(ReplayRun& run) {
  for (Use& use : arguments_) use.step = &run.state_of(use.op);
  for (Wrapped& wrapped : wrapped_)
    wrapped.place = static_cast<double*>(run.bound().storage(wrapped.memory).mutable_data());
}

void CallNumbers::set_for_this_call() const {
  for (const Use& use : arguments_) use.step->set_number(use.argument, given_.values[use.number]);
  for (const Wrapped& wrapped : wrapped_) *wrapped.place = given_.values[wrapped.number];
}

void CallNumbers::explain(std::ostream& out) const {
  std::set<size_t> numbers;
  for (const Use& use : arguments_) numbers.insert(use.number);
  for (const Wrapped& wrapped : wrapped_) numbers.insert(wrapped.number);
  if (!numbers.empty())
    out << numbers.size() << " numbers of the call are values of the program, in "
        << arguments_.size() + wrapped_.size() << " places\n";
}

}  // namespace overdrive::replay
