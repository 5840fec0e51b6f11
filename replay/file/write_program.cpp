#include "replay/file/write_program.h"

#include "replay/file/stored_optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

namespace overdrive::replay {

namespace {

// Whether the tensor is read by updates of Overdrive alone: options of an optimizer, which are there to be
// changed.
bool is_an_updates_numbers(const Program& program, int memory) {
  for (const Operator& op : program.operators) {
    if (op.vanishes) continue;
    const bool is_update = op.name == "overdrive::sgd_" || op.name == "overdrive::adam_";
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (program.touches(op.in[i], memory) && !(is_update && i + 1 == op.in.size())) return false;
    }
  }
  return true;
}

std::vector<int64_t> list_of(c10::IntArrayRef numbers) { return numbers.vec(); }

}  // namespace

// What is left of a program when operators without a step are left out: new numbers, and -1 for the others.
struct ProgramWriter::Numbering {
  std::vector<int> values, memories, operators;
  ProgramIndices indices;

  static int add(std::vector<int>& numbers, std::vector<int>& all, int index) {
    if (numbers[index] < 0) {
      numbers[index] = static_cast<int>(all.size());
      all.push_back(index);
    }
    return numbers[index];
  }
};

ProgramWriter::ProgramWriter(StoredStep& step, const SaveOptions& options) : step_(step) {
  std::set<std::string> seen;
  for (const auto& [name, tensor] : options.names) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    TORCH_CHECK(seen.insert(name).second, "Two tensors were given the name ", name, ".");
    names_[tensor.storage().unsafeGetStorageImpl()].emplace_back(name, tensor);
    names_of_tensors_.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  step_.generators = {at::detail::getDefaultCPUGenerator()};
}

std::string ProgramWriter::name_of(const c10::TensorImpl* tensor) const {
  const auto found = names_of_tensors_.find(tensor);
  return found == names_of_tensors_.end() ? std::string() : found->second;
}

// Values and memories keep their order.
void ProgramWriter::note_used(const Program& program, Numbering& numbering) const {
  numbering.values.assign(program.values.size(), -1);
  numbering.memories.assign(program.memories.size(), -1);
  numbering.operators.assign(program.operators.size() + 1, -1);
  std::vector<bool> used(program.values.size());
  const auto use = [&](const Argument& argument) {
    for (const int value : argument.values) {
      if (value >= 0) used[value] = true;
    }
  };
  for (const Operator& op : program.operators) {
    if (op.vanishes) continue;
    for (const Argument& in : op.in) use(in);
    for (const Argument& out : op.out) use(out);
  }
  for (const int result : program.results) {
    if (result >= 0) used[result] = true;
  }
  std::vector<bool> touched(program.memories.size());
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    Numbering::add(numbering.values, numbering.indices.values, static_cast<int>(i));
    touched[program.values[i].memory] = true;
  }
  for (size_t i = 0; i < touched.size(); ++i) {
    if (touched[i]) Numbering::add(numbering.memories, numbering.indices.memories, static_cast<int>(i));
  }
  // An operator that is left out stands for the next one that is not.
  for (size_t i = 0; i < program.operators.size(); ++i) {
    if (!program.operators[i].vanishes)
      Numbering::add(numbering.operators, numbering.indices.operators, static_cast<int>(i));
  }
  for (size_t i = program.operators.size(); i-- > 0;) {
    if (numbering.operators[i] < 0) numbering.operators[i] = numbering.operators[i + 1];
  }
}

// Two tensors over the same bytes would be two memories in the file.
void ProgramWriter::check_apart(const c10::Storage& storage, const std::string& name) const {
  const auto* begin = static_cast<const char*>(storage.data());
  for (const c10::Storage& other : kept_) {
    const auto* there = static_cast<const char*>(other.data());
    const bool apart = begin + storage.nbytes() <= there || there + other.nbytes() <= begin;
    TORCH_CHECK(apart || storage.nbytes() == 0 || other.nbytes() == 0, name,
                " shares memory with another tensor in a way that a step file cannot hold.");
  }
}

uint32_t ProgramWriter::tensor(const ProgramToSave& given, int index) {
  const Program& program = given.run.program();
  const Memory& memory = program.memories[index];
  const auto alive = memory.weak.lock();
  TORCH_CHECK(alive, "a tensor that the step uses was destroyed.");
  const c10::Storage storage(alive);
  const bool is_fixed = given.value_guards.holds_outside(index) && !is_an_updates_numbers(program, index);
  if (const auto known = tensors_.find(alive.get()); known != tensors_.end()) {
    step_.tensors[known->second].is_fixed |= is_fixed;
    return known->second;
  }
  const auto number = static_cast<uint32_t>(step_.tensors.size());
  tensors_.emplace(alive.get(), number);
  StoredTensor stored{.bytes = memory.bytes, .is_fixed = is_fixed};
  const auto add_view = [&](std::string name, const at::Tensor& tensor) {
    if (end_of(tensor.sizes(), tensor.strides(), tensor.storage_offset(), tensor.element_size()) > memory.bytes)
      return;
    stored.views.push_back({.name = std::move(name),
                            .type = tensor.scalar_type(),
                            .sizes = list_of(tensor.sizes()),
                            .strides = list_of(tensor.strides()),
                            .offset = tensor.storage_offset(),
                            .is_parameter = tensor.requires_grad() && tensor.is_leaf()});
  };
  for (const auto& [name, tensor] : names_[alive.get()]) add_view(name, tensor);
  for (const OutsideTensor& outside : program.outside) {
    const at::Tensor tensor(outside.weak.lock());
    if (!stored.views.empty() || program.values[outside.value].memory != index || !tensor.defined()) continue;
    std::string name = c10::str("tensor.", number);
    for (const LeafGradient& gradient : program.gradients) {
      if (gradient.before != outside.raw) continue;
      const std::string leaf = name_of(gradient.raw);
      name = (leaf.empty() ? c10::str("tensor.", number) : leaf) + ".grad";
    }
    add_view(std::move(name), tensor);
  }
  TORCH_CHECK(!stored.views.empty(), "a tensor that the step uses was destroyed.");
  check_apart(storage, stored.views.front().name);
  kept_.push_back(storage);
  stored.value = std::string_view(static_cast<const char*>(storage.data()), memory.bytes);
  step_.tensors.push_back(std::move(stored));
  return number;
}

// A gradient that the step makes and leaves to its leaf.
void ProgramWriter::name_left(const Program& program, int index, const Numbering& numbering,
                              StoredMemory& stored) const {
  for (const LeafGradient& gradient : program.gradients) {
    const at::Tensor after(gradient.after ? gradient.after->lock() : nullptr);
    if (!after.defined() || after.storage().unsafeGetStorageImpl() != program.memories[index].raw) continue;
    for (size_t i = 0; i < program.values.size(); ++i) {
      const Value& value = program.values[i];
      if (numbering.values[i] < 0 || value.memory != index || value.offset != after.storage_offset() ||
          value.sizes != after.sizes() || value.strides != after.strides() || value.type != after.scalar_type())
        continue;
      const std::string leaf = name_of(gradient.raw);
      stored.left_as = (leaf.empty() ? c10::str("tensor.of.", stored.index) : leaf) + ".grad";
      if (leaf.empty()) return stored.left_as.clear();
      stored.left_value = numbering.values[i];
      return;
    }
  }
}

StoredMemory ProgramWriter::memory(const ProgramToSave& given, int index, const Numbering& numbering) {
  const Program& program = given.run.program();
  const Memory& memory = program.memories[index];
  StoredMemory stored{.origin = memory.origin};
  switch (memory.origin) {
    case Origin::kGone:
      TORCH_CHECK(false, "an operator uses memory that died.");
    case Origin::kInput: {
      stored.index = static_cast<uint32_t>(given.inputs[memory.input].same_as);
      break;
    }
    case Origin::kOutside:
      stored.index = tensor(given, index);
      break;
    case Origin::kConstant:
      stored.constant = memory.constant;
      break;
    case Origin::kMade:
      if (memory.host_filled >= 0 && numbering.operators[memory.host_filled] >= 0) {
        stored.host_filled = numbering.operators[memory.host_filled];
        stored.constant = memory.constant.substr(0, program.used_bytes(index));
      }
      if (memory.lives) name_left(program, index, numbering, stored);
  }
  return stored;
}

StoredOperator ProgramWriter::operator_of(const Operator& op, const Numbering& numbering) {
  const std::string text = c10::toString(op.handle.schema());
  const auto [known, added] = schemas_.emplace(text, static_cast<uint32_t>(step_.schemas.size()));
  if (added) step_.schemas.push_back(text);
  StoredOperator stored{.schema = known->second, .in = op.in, .out = op.out, .grad_mode = op.grad_mode};
  for (std::vector<Argument>* list : {&stored.in, &stored.out}) {
    for (Argument& argument : *list) {
      for (int& value : argument.values) value = value < 0 ? -1 : numbering.values[value];
      if (argument.kind != Argument::Kind::kConstant || !argument.constant.isGenerator()) continue;
      const at::Generator generator = argument.constant.toGenerator();
      if (std::find(step_.generators.begin(), step_.generators.end(), generator) == step_.generators.end())
        step_.generators.push_back(generator);
    }
  }
  return stored;
}

void ProgramWriter::write_optimizer(const OptimizerNumbers& numbers, const Numbering& numbering,
                                    StoredProgram& stored) {
  const auto found = std::find_if(optimizers_.begin(), optimizers_.end(), [&](const KnownOptimizer& known) {
    return known.optimizer == &numbers.optimizer();
  });
  const auto index = static_cast<size_t>(found - optimizers_.begin());
  if (found == optimizers_.end()) {
    optimizers_.push_back({&numbers.optimizer(), {}});
    StoredOptimizer optimizer{.kind = static_cast<uint8_t>(numbers.kind())};
    for (const auto& group : numbers.optimizer().param_groups())
      optimizer.groups.push_back(numbers_of_options(numbers.kind(), group.options()));
    step_.optimizers.push_back(std::move(optimizer));
  }
  auto& parameters = step_.optimizers[index].parameters;
  for (const OptimizerNumbers::Parameter& parameter : numbers.updated()) {
    const auto [known, added] =
        optimizers_[index].parameters.emplace(parameter.tensor, static_cast<uint32_t>(parameters.size()));
    if (added)
      parameters.push_back({static_cast<uint32_t>(parameter.group), numbers.steps_of(parameter.tensor)});
    StoredUpdate update{.optimizer = static_cast<uint32_t>(index), .parameter = known->second};
    for (const OptimizerNumbers::Use& use : parameter.uses)
      update.uses.push_back({numbering.operators[use.op], use.argument, static_cast<uint32_t>(use.in_update)});
    stored.updates.push_back(std::move(update));
  }
}

std::pair<StoredProgram, ProgramIndices> ProgramWriter::write(const ProgramToSave& given) {
  const Program& program = given.run.program();
  TORCH_CHECK(!program.is_part(), "a captured part has a graph around it; capture the whole step.");
  Numbering numbering;
  note_used(program, numbering);
  StoredProgram stored{.eager = given.eager};
  for (size_t i = 0; i < given.inputs.size(); ++i) {
    TORCH_CHECK(
        !given.value_guards.holds(i), "input ", i,
        " had the same values in all calls so far, so that the function may have read them through a pointer; "
        "call the step with other values before it is saved.");
    const InputSignature& signature = given.inputs[i];
    stored.inputs.push_back({.type = signature.type,
                             .sizes = list_of(signature.sizes),
                             .strides = list_of(signature.strides),
                             .alignment = signature.alignment,
                             .same_as = static_cast<uint32_t>(signature.same_as)});
  }
  for (const int index : numbering.indices.values) {
    Value value = program.values[index];
    value.memory = numbering.memories[value.memory];
    stored.values.push_back(std::move(value));
  }
  for (const int index : numbering.indices.memories) stored.memories.push_back(memory(given, index, numbering));
  for (const int index : numbering.indices.operators)
    stored.operators.push_back(operator_of(program.operators[index], numbering));
  for (const int result : program.results) stored.results.push_back(result < 0 ? -1 : numbering.values[result]);
  if (given.numbers) {
    for (const OptimizerNumbers& each : given.numbers->all()) write_optimizer(each, numbering, stored);
  }
  return {std::move(stored), std::move(numbering.indices)};
}

}  // namespace overdrive::replay
