#include "replay/file/check_program.h"

#include "engine/operators/facts.h"
#include "replay/file/coverage.h"
#include "replay/file/operator_rules.h"
#include "replay/file/stored_optimizer.h"
#include "replay/optimizers/python_optimizers.h"
#include "replay/record/operator_writes.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace overdrive::replay {

namespace {

// Bytes from the begin of its memory to the last element of a tensor; throws where no machine has them.
uint64_t checked_end(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, at::ScalarType type) {
  constexpr int64_t kMost = int64_t{1} << 46;
  TORCH_CHECK(sizes.size() == strides.size(), "a tensor has another number of sizes than of strides.");
  TORCH_CHECK(offset >= 0 && offset < kMost, "a tensor begins before its memory.");
  int64_t last = offset, count = 1;
  bool is_empty = false, fits = true;
  for (size_t i = 0; i < sizes.size() && fits; ++i) {
    TORCH_CHECK(sizes[i] >= 0 && strides[i] >= 0, "a tensor has a size or a stride below zero.");
    is_empty |= sizes[i] == 0;
    int64_t reach = 0;
    fits = !__builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &reach) &&
           !__builtin_add_overflow(last, reach, &last) &&
           !__builtin_mul_overflow(count, std::max<int64_t>(sizes[i], 1), &count) && last < kMost &&
           count < kMost;
  }
  TORCH_CHECK(fits, "a tensor is larger than any memory.");
  return is_empty ? 0 : static_cast<uint64_t>(last + 1) * c10::elementSize(type);
}

// Whether no two elements are one, as in an expanded tensor.
bool is_apart(const Value& value) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] == 0) return true;
    if (value.sizes[i] > 1) dimensions.emplace_back(value.strides[i], value.sizes[i]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

// A constant as its argument's type wants it. Lists come out of a file without a type.
class Constants {
 public:
  // Throws where the value is none of the type.
  static c10::IValue typed(const c10::IValue& value, const c10::Argument& argument) {
    if (argument.name() == "pin_memory")
      TORCH_CHECK(value.isNone() || (value.isBool() && !value.toBool()), "pinned memory is not for a file.");
    return typed(value, *argument.real_type());
  }

 private:
  static c10::IValue typed(const c10::IValue& value, const c10::Type& type) {
    using c10::TypeKind;
    switch (type.kind()) {
      case TypeKind::OptionalType:
        if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return value;
        return typed(value, *type.castRaw<c10::OptionalType>()->getElementType());
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return checked(value, value.isInt());
      case TypeKind::FloatType:
        return checked(value, value.isDouble());
      case TypeKind::BoolType:
        return checked(value, value.isBool());
      case TypeKind::NumberType:
        return checked(value, value.isInt() || value.isDouble() || value.isBool() || value.isComplexDouble());
      case TypeKind::StringType:
        return checked(value, value.isString() && value.toStringRef().size() <= 64);
      case TypeKind::DeviceObjType:
        return checked(value, value.isDevice());
      case TypeKind::GeneratorType:
        return checked(value, value.isGenerator());
      case TypeKind::ScalarTypeType:
        return checked(value, value.isInt() && is_dense_type(value.toInt()));
      case TypeKind::LayoutType:
        return checked(value, value.isInt() && value.toInt() == static_cast<int64_t>(at::kStrided));
      case TypeKind::MemoryFormatType:
        return checked(value, value.isInt() && value.toInt() >= 0 && value.toInt() < 4);
      case TypeKind::ListType:
        return list(value, *type.castRaw<c10::ListType>()->getElementType());
      default:
        TORCH_CHECK(false, "an argument of type ", type.str(), " cannot stand in a file.");
    }
  }

  static const c10::IValue& checked(const c10::IValue& value, bool fits) {
    TORCH_CHECK(fits, "an argument has a value of another type, or one that cannot be.");
    return value;
  }

  static bool is_dense_type(int64_t number) {
    return number >= 0 && number <= static_cast<int64_t>(at::kBFloat16) &&
           !c10::isQIntType(static_cast<at::ScalarType>(number)) &&
           number != static_cast<int64_t>(at::kComplexHalf);
  }

  template <typename T, typename Get>
  static c10::IValue list_of(const c10::IValue& value, const c10::Type& element, const Get& get) {
    c10::List<T> result;
    for (const c10::IValue& item : value.toListRef()) result.push_back(get(typed(item, element)));
    return result;
  }

  static c10::IValue list(const c10::IValue& value, const c10::Type& element) {
    TORCH_CHECK(value.isList(), "an argument is no list.");
    switch (element.kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return list_of<int64_t>(value, element, [](const c10::IValue& item) { return item.toInt(); });
      case c10::TypeKind::FloatType:
        return list_of<double>(value, element, [](const c10::IValue& item) { return item.toDouble(); });
      case c10::TypeKind::BoolType:
        return list_of<bool>(value, element, [](const c10::IValue& item) { return item.toBool(); });
      case c10::TypeKind::TensorType:
        TORCH_CHECK(value.toListRef().empty(), "a list has something else than tensors.");
        return c10::List<at::Tensor>();
      default:
        TORCH_CHECK(false, "a list of type ", element.str(), " cannot stand in a file.");
    }
  }
};

bool is_tensor_type(const c10::Type& type) { return type.kind() == c10::TypeKind::TensorType; }

// Tensor: 0. Tensor?: 1. Tensor[]: 2. Tensor?[]: 3. Something else: -1.
int form_of(const c10::Type& type) {
  if (is_tensor_type(type)) return 0;
  if (const auto* optional = type.castRaw<c10::OptionalType>())
    return is_tensor_type(*optional->getElementType()) ? 1 : -1;
  if (const auto* list = type.castRaw<c10::ListType>()) {
    const int element = form_of(*list->getElementType());
    return element == 0 || element == 1 ? element + 2 : -1;
  }
  return -1;
}

class Checker {
 public:
  Checker(const StoredStep& step, const StoredProgram& stored,
          const std::vector<c10::OperatorHandle>& operators, uint64_t most_memory)
      : step_(step), stored_(stored), operators_(operators), most_memory_(most_memory) {}

  Program run() {
    check_inputs();
    make_memories();
    make_values();
    size_memories();
    for (size_t i = 0; i < stored_.operators.size(); ++i) {
      now_ = static_cast<int>(i);
      try {
        make_operator(stored_.operators[i]);
      } catch (const c10::Error& error) {
        const auto& schemas = step_.schemas;
        const uint32_t schema = stored_.operators[i].schema;
        TORCH_CHECK(false, "operator ", i,
                    schema < schemas.size() ? " (" + name_of_schema(schemas[schema]) + ")" : "", ": ",
                    error.msg());
      }
    }
    check_end();
    check_updates();
    check_call();
    return std::move(program_);
  }

 private:
  void check_inputs() const {
    for (size_t i = 0; i < stored_.inputs.size(); ++i) {
      const StoredInput& input = stored_.inputs[i];
      checked_end(input.sizes, input.strides, 0, input.type);
      TORCH_CHECK(
          input.alignment < 16 && input.alignment % std::min<size_t>(8, c10::elementSize(input.type)) == 0,
          "an input begins where none of its type can.");
      TORCH_CHECK(input.same_as <= i && stored_.inputs[input.same_as].same_as == input.same_as,
                  "an input is the same as one that is not.");
      const StoredInput& same = stored_.inputs[input.same_as];
      TORCH_CHECK(same.sizes == input.sizes && same.strides == input.strides && same.type == input.type,
                  "two inputs that are one tensor have other sizes.");
    }
  }

  void make_memories() {
    std::set<std::pair<Origin, uint32_t>> seen;
    std::set<std::string> left;
    for (const StoredMemory& stored : stored_.memories) {
      Memory memory{.weak = WeakStorage(c10::intrusive_ptr<c10::StorageImpl>()),
                    .raw = nullptr,
                    .origin = stored.origin,
                    .bytes = 0,
                    .address = nullptr};
      if (stored.origin == Origin::kInput) {
        TORCH_CHECK(stored.index < stored_.inputs.size(), "memory is that of an input that does not exist.");
        const StoredInput& input = stored_.inputs[stored.index];
        TORCH_CHECK(input.same_as == stored.index, "memory is that of an input that is another one.");
        memory.input = static_cast<int>(stored.index);
        memory.bytes = checked_end(input.sizes, input.strides, 0, input.type);
      } else if (stored.origin == Origin::kOutside) {
        TORCH_CHECK(stored.index < step_.tensors.size(), "memory is that of a tensor that does not exist.");
        memory.bytes = step_.tensors[stored.index].bytes;
        memory.lives = true;
      } else if (stored.origin == Origin::kConstant) {
        memory.bytes = stored.constant.size();
        memory.constant = stored.constant;
      } else {
        memory.lives = !stored.left_as.empty();
        memory.constant = stored.constant;
        memory.host_filled = stored.host_filled;
        TORCH_CHECK(
            stored.host_filled >= -1 && stored.host_filled < static_cast<int64_t>(stored_.operators.size()),
            "memory is filled before an operator that does not exist.");
      }
      if (stored.origin == Origin::kInput || stored.origin == Origin::kOutside)
        TORCH_CHECK(seen.emplace(stored.origin, stored.index).second, "one tensor has two memories.");
      TORCH_CHECK(stored.left_as.empty() || left.insert(stored.left_as).second,
                  "the step leaves two tensors that are called ", stored.left_as, ".");
      if (stored.origin != Origin::kMade)
        TORCH_CHECK(stored.host_filled == -1 && stored.left_as.empty(),
                    "memory is made that was there before.");
      program_.memories.push_back(std::move(memory));
    }
    coverage_.resize(program_.memories.size());
  }

  void make_values() {
    for (const Value& value : stored_.values) {
      TORCH_CHECK(is_index(value.memory, program_.memories.size()),
                  "a tensor lies in memory that does not exist.");
      const uint64_t end = checked_end(value.sizes, value.strides, value.offset, value.type);
      Memory& memory = program_.memories[value.memory];
      TORCH_CHECK(!value.wrapped || value.sizes.empty(), "a wrapped number has dimensions.");
      if (memory.origin == Origin::kMade) {
        memory.bytes = std::max<size_t>(memory.bytes, end);
      } else {
        TORCH_CHECK(end <= memory.bytes, "a tensor ends behind its memory.");
      }
      if (memory.origin == Origin::kInput)
        TORCH_CHECK(
            stored_.inputs[memory.input].alignment % std::min<size_t>(8, c10::elementSize(value.type)) == 0,
            "a tensor begins where none of its type can.");
      program_.values.push_back(value);
    }
  }

  void size_memories() {
    uint64_t all = 0;
    for (size_t i = 0; i < program_.memories.size(); ++i) {
      Memory& memory = program_.memories[i];
      all += memory.bytes;
      TORCH_CHECK(memory.bytes <= most_memory_ && all <= most_memory_, "the program wants more than ",
                  most_memory_, " bytes of memory; LoadOptions::most_memory allows more.");
      const bool filled = memory.host_filled >= 0;
      TORCH_CHECK(!filled || memory.constant.size() == memory.bytes, "memory is filled with too few bytes.");
      if (memory.origin == Origin::kMade) {
        TORCH_CHECK(filled || memory.constant.empty(), "memory has bytes that nobody puts there.");
      } else {
        coverage_[i].add(0, memory.bytes);
      }
    }
  }

  static bool is_index(int64_t index, size_t size) { return index >= 0 && index < static_cast<int64_t>(size); }

  void touch(int value) {
    Memory& memory = program_.memories[program_.values[value].memory];
    if (memory.first < 0) memory.first = now_;
    memory.last = now_;
  }

  void check_argument(const Argument& given, const c10::Argument& declared, bool is_result) const {
    const int form = form_of(*declared.type());
    const auto each = [&](bool may_be_undefined) {
      for (const int value : given.values) {
        TORCH_CHECK(is_index(value, program_.values.size()) || (may_be_undefined && value == -1),
                    "a tensor does not exist.");
      }
    };
    switch (given.kind) {
      case Argument::Kind::kTensor:
        TORCH_CHECK((form == 0 || form == 1) && given.values.size() == 1,
                    "a tensor stands where none belongs.");
        return each(false);
      case Argument::Kind::kTensors:
        TORCH_CHECK(form == 2, "a list of tensors stands where none belongs.");
        return each(false);
      case Argument::Kind::kOptionalTensors:
        TORCH_CHECK(form == 3 && !is_result, "a list of tensors stands where none belongs.");
        return each(true);
      case Argument::Kind::kConstant:
        TORCH_CHECK(given.values.empty(), "a constant has tensors.");
        TORCH_CHECK(form != 0 || is_result, "a tensor is missing.");
    }
  }

  void make_operator(const StoredOperator& stored) {
    TORCH_CHECK(stored.schema < operators_.size(), "it does not exist.");
    Operator op{.handle = operators_[stored.schema],
                .name = name_of_schema(step_.schemas[stored.schema]),
                .in = stored.in,
                .out = stored.out,
                .grad_mode = stored.grad_mode};
    const auto& schema = op.handle.schema();
    TORCH_CHECK(op.in.size() == schema.arguments().size() && op.out.size() == schema.returns().size(),
                "it has another number of arguments.");
    fill_from_host();
    for (size_t i = 0; i < op.in.size(); ++i) take_argument(op, i);
    for (size_t i = 0; i < op.out.size(); ++i) check_argument(op.out[i], schema.returns()[i], true);
    op.answers = tells_its_data(op);
    make_results(op);
    for (const int memory : op.writes) {
      Memory& written = program_.memories[memory];
      written.written = true;
      TORCH_CHECK(written.origin != Origin::kConstant, "it writes a constant.");
      TORCH_CHECK(written.origin != Origin::kOutside || !step_.tensors[stored_.memories[memory].index].is_fixed,
                  "it writes a tensor that never changes.");
    }
    program_.operators.push_back(std::move(op));
    const std::string text = broken_rule(program_, static_cast<size_t>(now_));
    TORCH_CHECK(text.empty(), text);
  }

  void fill_from_host() {
    for (size_t i = 0; i < program_.memories.size(); ++i) {
      Memory& memory = program_.memories[i];
      if (memory.host_filled != now_) continue;
      TORCH_CHECK(memory.first < 0, "memory is filled that operators have used before.");
      memory.first = memory.last = now_;
      coverage_[i].add(0, memory.bytes);
    }
  }

  // Reads first, then writes.
  void take_argument(Operator& op, size_t i) {
    const c10::Argument& declared = op.handle.schema().arguments()[i];
    Argument& given = op.in[i];
    check_argument(given, declared, false);
    if (given.kind == Argument::Kind::kConstant) {
      given.constant = Constants::typed(given.constant, declared);
      return;
    }
    const auto hidden = hidden_writes(op.name);
    const bool writes = writes_argument(declared) || std::find(hidden.begin(), hidden.end(), i) != hidden.end();
    const bool reads = !writes || !overwrites(op.name, declared);
    for (const int index : given.values) {
      if (index < 0) continue;
      const Value& value = program_.values[index];
      touch(index);
      TORCH_CHECK(!reads || coverage_[value.memory].has(value), "it reads memory that nothing was written to.");
      if (!writes) continue;
      TORCH_CHECK(is_apart(value), "it writes a tensor whose elements lie in one place.");
      written_.push_back(index);
      if (std::find(op.writes.begin(), op.writes.end(), value.memory) == op.writes.end())
        op.writes.push_back(value.memory);
    }
  }

  bool is_among(const std::vector<int>& known, const Value& value) const {
    return std::any_of(known.begin(), known.end(), [&](int index) {
      const Value& other = program_.values[index];
      return other.memory == value.memory && other.offset == value.offset && other.sizes == value.sizes &&
             other.strides == value.strides && other.type == value.type;
    });
  }

  void make_results(Operator& op) {
    // Tensors that it was given or has made, and their memories.
    std::vector<int> known;
    std::set<int> memories;
    const auto note = [&](int value) {
      known.push_back(value);
      memories.insert(program_.values[value].memory);
    };
    for (const Argument& in : op.in) {
      for (const int value : in.values) {
        if (value >= 0) note(value);
      }
    }
    for (const Argument& out : op.out) {
      if (out.kind == Argument::Kind::kConstant) {
        const c10::IValue& told = out.constant;
        TORCH_CHECK(told.isNone() || told.isBool() || told.isInt() || told.isDouble() ||
                        told.isComplexDouble() || (told.isTensor() && !told.toTensor().defined()),
                    "it has a result that is neither a tensor nor a number.");
        if (told.isTensor()) op.fresh.push_back(false);
        continue;
      }
      for (const int index : out.values) {
        const Value& value = program_.values[index];
        const bool fresh = !memories.contains(value.memory);
        op.fresh.push_back(fresh);
        if (!fresh) {
          TORCH_CHECK(is_among(known, value), "it has a result that it neither makes nor was given.");
          continue;
        }
        const Memory& memory = program_.memories[value.memory];
        TORCH_CHECK(memory.origin == Origin::kMade && memory.first < 0,
                    "it makes memory that is there already.");
        TORCH_CHECK(is_apart(value), "it makes a tensor whose elements lie in one place.");
        written_.push_back(index);
        note(index);
      }
    }
    for (const Argument& out : op.out) {
      for (const int index : out.values) touch(index);
    }
    for (const int index : std::exchange(written_, {}))
      coverage_[program_.values[index].memory].add(program_.values[index]);
  }

  // As a recording finds it out of the arguments.
  bool tells_its_data(const Operator& op) const {
    if (op.handle.hasTag(at::Tag::data_dependent_output)) return true;
    if (!op.handle.hasTag(at::Tag::dynamic_output_shape)) return false;
    if (op.name != "aten::index.Tensor") return true;
    return std::any_of(op.in[1].values.begin(), op.in[1].values.end(), [&](int index) {
      return index >= 0 &&
             (program_.values[index].type == at::kBool || program_.values[index].type == at::kByte);
    });
  }

  void check_end() {
    TORCH_CHECK(!stored_.operators.empty(), "a program has no operators.");
    for (const int32_t result : stored_.results) {
      TORCH_CHECK(result == -1 || is_index(result, program_.values.size()), "a result does not exist.");
      if (result < 0) continue;
      const Value& value = program_.values[result];
      TORCH_CHECK(coverage_[value.memory].has(value), "a result is memory that nothing was written to.");
      // Nothing is put there afterwards.
      Memory& memory = program_.memories[value.memory];
      TORCH_CHECK(memory.origin != Origin::kConstant, "a result is a constant.");
      memory.last = static_cast<int>(stored_.operators.size());
      if (memory.first < 0) memory.first = 0;
      program_.results.push_back(result);
    }
    program_.result_versions.assign(program_.results.size(), 0);
    program_.input_bumps.assign(stored_.inputs.size(), 1);
    for (size_t i = 0; i < stored_.memories.size(); ++i) {
      const StoredMemory& memory = stored_.memories[i];
      if (memory.left_as.empty()) {
        TORCH_CHECK(memory.left_value == -1, "the step leaves a tensor that has no name.");
        continue;
      }
      TORCH_CHECK(is_index(memory.left_value, program_.values.size()) &&
                      program_.values[memory.left_value].memory == static_cast<int>(i),
                  "what the step leaves does not exist.");
      TORCH_CHECK(coverage_[i].has(program_.values[memory.left_value]),
                  "the step leaves memory that nothing was written to.");
    }
  }

  void check_updates() const {
    for (const StoredUpdate& update : stored_.updates) {
      TORCH_CHECK(update.optimizer < step_.optimizers.size(), "an optimizer does not exist.");
      const StoredOptimizer& optimizer = step_.optimizers[update.optimizer];
      TORCH_CHECK(update.parameter < optimizer.parameters.size(), "an optimizer's parameter does not exist.");
      const auto& parameter = optimizer.parameters[update.parameter];
      const auto wanted = numbers_of_update(optimizer, parameter.group, 1);
      for (const StoredUse& use : update.uses) {
        TORCH_CHECK(is_index(use.op, program_.operators.size()) && use.in_update < wanted.size(),
                    "a number of an optimizer has no place.");
        const Operator& op = program_.operators[use.op];
        TORCH_CHECK(is_index(use.argument, op.in.size()) &&
                        op.in[use.argument].kind == Argument::Kind::kConstant &&
                        op.in[use.argument].constant.isDouble() && wanted[use.in_update].has_number &&
                        op.name.substr(0, op.name.find('.')) == wanted[use.in_update].name,
                    "a number of an optimizer stands where none belongs.");
      }
    }
  }

  static bool is_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

  void check_call() const {
    TORCH_CHECK(is_time(stored_.eager.seconds) && (!stored_.call || is_time(stored_.call->seconds)),
                "a time is no time.");
    if (!stored_.call) return;
    TORCH_CHECK(stored_.call->inputs.size() == stored_.inputs.size() &&
                    stored_.call->operators.size() == stored_.operators.size() &&
                    stored_.call->results.size() == stored_.results.size(),
                "the call that proves the program is another program's.");
    for (size_t i = 0; i < stored_.inputs.size(); ++i) {
      const StoredInput& input = stored_.inputs[i];
      const size_t bytes = input.same_as == i ? checked_end(input.sizes, input.strides, 0, input.type) : 0;
      TORCH_CHECK(stored_.call->inputs[i].size() == bytes, "an input of the call has another size.");
    }
    for (const StoredTensor& tensor : step_.tensors)
      TORCH_CHECK(tensor.value, "a call proves a program whose tensors have no values.");
  }

  const StoredStep& step_;
  const StoredProgram& stored_;
  const std::vector<c10::OperatorHandle>& operators_;
  const uint64_t most_memory_;
  Program program_;
  std::vector<Coverage> coverage_;
  // Of the operator that is looked at: values that it writes.
  std::vector<int> written_;
  int now_ = 0;
};

}  // namespace

std::vector<c10::OperatorHandle> operators_of(const StoredStep& step) {
  define_python_optimizers();
  std::vector<c10::OperatorHandle> result;
  for (const std::string& schema : step.schemas) {
    const std::string name = name_of_schema(schema);
    const size_t dot = name.find('.');
    const std::string base = name.substr(0, dot);
    TORCH_CHECK((name.starts_with("aten::") || name == "overdrive::sgd_" || name == "overdrive::adam_") &&
                    engine::facts_of(name).in_files && !engine::facts_of(name).moves_memory,
                name, " is no operator that a step file may name.");
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {base, dot == name.npos ? std::string() : name.substr(dot + 1)});
    TORCH_CHECK(handle, "this LibTorch has no operator ", name, ".");
    const std::string here = c10::toString(handle->schema());
    TORCH_CHECK(here == schema, "this LibTorch has another operator ", name, ": ", here, " instead of ", schema,
                ".");
    TORCH_CHECK(handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), name,
                " does not run on the CPU.");
    result.push_back(*handle);
  }
  return result;
}

void check_tables(const StoredStep& step, uint64_t most_memory) {
  uint64_t all = 0;
  std::set<std::string> names;
  TORCH_CHECK(!step.generator_states.empty() && step.generator_states.size() <= 64, "there are no generators.");
  for (const StoredTensor& tensor : step.tensors) {
    TORCH_CHECK(tensor.bytes <= most_memory && (all += tensor.bytes) <= most_memory,
                "the tensors want more than ", most_memory,
                " bytes of memory; LoadOptions::most_memory allows more.");
    TORCH_CHECK(!tensor.views.empty(), "a tensor has no name.");
    TORCH_CHECK(!tensor.value || tensor.value->size() == tensor.bytes, "a tensor's values have another size.");
    TORCH_CHECK(!tensor.is_fixed || tensor.value, "a tensor that never changes has no values.");
    for (const StoredView& view : tensor.views) {
      TORCH_CHECK(names.insert(view.name).second, "two tensors are called ", view.name, ".");
      TORCH_CHECK(checked_end(view.sizes, view.strides, view.offset, view.type) <= tensor.bytes, "tensor ",
                  view.name, " ends behind its memory.");
    }
  }
  for (const StoredOptimizer& optimizer : step.optimizers) check_optimizer(optimizer);
  std::set<std::string> functions;
  TORCH_CHECK(!step.functions.empty(), "the file has no functions.");
  for (const StoredFunction& function : step.functions) {
    TORCH_CHECK(functions.insert(function.name).second, "two functions are called ", function.name, ".");
    TORCH_CHECK(!function.programs.empty(), "a function has no programs.");
  }
}

namespace {

// Which elements of a tensor's memory have names.
class NamedElements {
 public:
  explicit NamedElements(const StoredTensor& tensor) : tensor_(tensor) {}

  bool has(const Value& value) {
    const auto is_value = [&](const StoredView& view) {
      return view.offset == value.offset && view.type == value.type &&
             at::IntArrayRef(view.sizes) == value.sizes && at::IntArrayRef(view.strides) == value.strides;
    };
    if (std::any_of(tensor_.views.begin(), tensor_.views.end(), is_value)) return true;
    if (!bytes_) {
      bytes_.emplace();
      for (const StoredView& view : tensor_.views) bytes_->add(value_of(view));
    }
    return bytes_->has(value);
  }

 private:
  static Value value_of(const StoredView& view) {
    return {.memory = 0,
            .offset = view.offset,
            .sizes = c10::DimVector(at::IntArrayRef(view.sizes)),
            .strides = c10::DimVector(at::IntArrayRef(view.strides)),
            .type = view.type,
            .wrapped = false,
            .requires_grad = false};
  }

  const StoredTensor& tensor_;
  std::optional<Coverage> bytes_;
};

}  // namespace

int tensor_without_name(const StoredStep& step) {
  std::vector<NamedElements> named(step.tensors.begin(), step.tensors.end());
  for (const StoredFunction& function : step.functions) {
    for (const StoredProgram& program : function.programs) {
      for (const Value& value : program.values) {
        const StoredMemory& memory = program.memories[value.memory];
        if (memory.origin == Origin::kOutside && !named[memory.index].has(value))
          return static_cast<int>(memory.index);
      }
    }
  }
  return -1;
}

void check_calls(const StoredStep& step) {
  if (step.version < 2) return;
  const uint64_t digest = digest_of_tables(step);
  for (const StoredFunction& function : step.functions) {
    for (const StoredProgram& program : function.programs)
      TORCH_CHECK(!program.call || program.call->tables == digest, "function ", function.name,
                  ": the tables of the file were changed after the call that proves them was made; save the "
                  "step again.");
  }
}

Program checked_program(const StoredStep& step, const StoredProgram& stored,
                        const std::vector<c10::OperatorHandle>& operators, uint64_t most_memory) {
  return Checker(step, stored, operators, most_memory).run();
}

}  // namespace overdrive::replay
